//! Filters for which a table of its own has a row for each job, in the order of jobs: labels, and the ledger of schedules.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::store::JobFilter;

/// The jobs of a schedule that one search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotJobs {
    /// Those that its slots became.
    Fired,
    /// Their retries.
    Retries,
}

impl SlotJobs {
    /// The searches that find all jobs of a filter: a table each, unless a label leads.
    pub(super) const fn of(filter: &JobFilter) -> &'static [Self] {
        match (&filter.schedule, &filter.label) {
            (Some(_), None) => &[Self::Fired, Self::Retries],
            _ => &[Self::Fired],
        }
    }
}

/// The one of these filters that the query goes by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag<'f> {
    /// Name and value of a label.
    Label(&'f str, &'f str),
    /// The id of a schedule, its definition if the filter names one, and which of its jobs.
    Schedule(&'f str, Option<&'f str>, SlotJobs),
}

impl<'f> Tag<'f> {
    /// The tag of this filter. A schedule beside a label is a condition of its own.
    pub(super) fn of(filter: &'f JobFilter, jobs: SlotJobs) -> Option<Self> {
        let label = filter.label.as_ref().map(|(name, value)| Self::Label(name, value));
        let schedule = || {
            let schedule = filter.schedule.as_deref()?;
            Some(Self::Schedule(schedule, filter.name.as_deref(), jobs))
        };
        label.or_else(schedule)
    }

    /// The table, by the name that it has in the query.
    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Label(..) => "labels tag",
            Self::Schedule(.., SlotJobs::Fired) => "fires tag",
            Self::Schedule(.., SlotJobs::Retries) => "carried_slots tag",
        }
    }

    /// The condition for the rows of the table; `bind` gives the number of a value.
    pub(super) fn condition(self, mut bind: impl FnMut(Value) -> usize) -> String {
        match self {
            Self::Label(name, value) => {
                let (name, value) = (bind(name.to_owned().into()), bind(value.to_owned().into()));
                format!("tag.name = ?{name} AND tag.value = ?{value}")
            }
            Self::Schedule(schedule, definition, jobs) => {
                let mut condition = format!("tag.schedule = ?{}", bind(schedule.to_owned().into()));
                if jobs == SlotJobs::Fired {
                    condition += " AND tag.reason IS NULL";
                }
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
