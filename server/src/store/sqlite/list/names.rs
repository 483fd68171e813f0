//! Many names in one filter, as a pattern stands for them: one walk over the jobs looks each up in a set.

use rusqlite::Connection;

use crate::store::JobFilter;
use crate::store::sqlite::blocks::SEEN_NAME;

/// Above this many names they are one search together.
///
/// An index by name has the jobs that ended badly only: of a few names it finds some among millions at once. All other searches read
/// each block that has their name, so that many names read a block many times. With 50,000 waiting jobs of 2,000 names, in a build
/// without optimization, a page took 0.1 s for one name, 0.3 s for 4, 1 s for 16 and 2.2 s for 64; together 64 and 1,111 take 0.15 s.
pub(super) const SINGLES_MAX: usize = 16;

/// The definitions with these names, as SQLite reads them.
#[derive(Debug)]
pub(super) struct NameSet {
    /// JSON list of the ids of all their revisions.
    pub(super) definitions: String,
    /// JSON list of the first id of each name, by which `seen` and `unresolved` know it.
    pub(super) firsts: String,
}

impl NameSet {
    /// The names of a filter, if they are too many to be searched one by one.
    pub(super) fn of(connection: &Connection, filter: &JobFilter) -> rusqlite::Result<Option<Self>> {
        if filter.names.len() <= SINGLES_MAX {
            return Ok(None);
        }
        let mut ids = connection.prepare_cached("SELECT id FROM definitions WHERE name = ?1 ORDER BY id")?;
        let (mut definitions, mut firsts) = (Vec::new(), Vec::new());
        for name in &filter.names {
            let of_name: Vec<i64> = ids.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
            // A name that no job ever had has none.
            firsts.extend(of_name.first());
            definitions.extend(of_name);
        }
        Ok(Some(Self { definitions: json(&definitions), firsts: json(&firsts) }))
    }

    /// The newest block up to this one that has a job with one of the names.
    pub(super) fn newest_up_to(
        &self,
        connection: &Connection,
        highest: i64,
    ) -> rusqlite::Result<Option<i64>> {
        let mut statement = connection.prepare_cached(NEWEST_BLOCK)?;
        statement.query_row((SEEN_NAME, &self.firsts, highest), |row| row.get(0))
    }
}

/// One look-up for each name.
const NEWEST_BLOCK: &str =
    "SELECT max((SELECT block FROM seen WHERE kind = ?1 AND which = name.value AND block <= ?3
        ORDER BY block DESC LIMIT 1)) FROM json_each(?2) AS name";

fn json(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("[{}]", ids.join(","))
}
