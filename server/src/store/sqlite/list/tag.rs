//! Filters for which a table of its own has a row for each job, in the order of jobs: labels, and the ledger of schedules.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::store::JobFilter;

/// The one of these filters that the query goes by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag<'f> {
    /// Name and value of a label.
    Label(&'f str, &'f str),
    /// The id of a schedule, and its definition if the filter names one.
    Schedule(&'f str, Option<&'f str>),
}

impl<'f> Tag<'f> {
    /// The tag of this filter. A schedule beside a label is a condition of its own.
    pub(super) fn of(filter: &'f JobFilter) -> Option<Self> {
        let label = filter.label.as_ref().map(|(name, value)| Self::Label(name, value));
        let schedule = || {
            let schedule = filter.schedule.as_deref()?;
            Some(Self::Schedule(schedule, filter.name.as_deref()))
        };
        label.or_else(schedule)
    }

    /// The table, by the name that it has in the query.
    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Label(..) => "labels tag",
            Self::Schedule(..) => "fires tag",
        }
    }

    /// The condition for the rows of the table; `bind` gives the number of a value.
    pub(super) fn condition(self, mut bind: impl FnMut(Value) -> usize) -> String {
        match self {
            Self::Label(name, value) => {
                let (name, value) = (bind(name.to_owned().into()), bind(value.to_owned().into()));
                format!("tag.name = ?{name} AND tag.value = ?{value}")
            }
            Self::Schedule(schedule, definition) => {
                let mut condition =
                    format!("tag.reason IS NULL AND tag.schedule = ?{}", bind(schedule.to_owned().into()));
                if let Some(definition) = definition {
                    condition += &format!(" AND tag.definition = ?{}", bind(definition.to_owned().into()));
                }
                condition
            }
        }
    }

    /// The newest job up to this one that has the tag, also among those that have ended.
    pub(super) fn newest_up_to(self, connection: &Connection, job: i64) -> rusqlite::Result<Option<i64>> {
        let mut values: Vec<Value> = vec![job.into()];
        let condition = self.condition(|value| {
            values.push(value);
            values.len()
        });
        let sql = format!(
            "SELECT tag.job FROM {} WHERE {condition} AND tag.job <= ?1 ORDER BY tag.job DESC LIMIT 1",
            self.table()
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        rows.next()?.map(|row| row.get(0)).transpose()
    }
}
