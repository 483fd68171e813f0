//! How many jobs wait for their time.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::store::sqlite::pending_batch;

/// The number of jobs in state `scheduled` by the name of their definition. Those of a batch that is being made are not shown yet.
pub(in crate::store::sqlite) fn scheduled_jobs(
    connection: &Connection,
) -> rusqlite::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for range in pending_batch::without(&pending_batch::ranges(connection)?, (1, i64::MAX)) {
        let mut query = connection.prepare_cached(SQL)?;
        let mut rows = query.query(range)?;
        while let Some(row) = rows.next()? {
            *counts.entry(row.get(0)?).or_default() += row.get::<_, i64>(1)?.cast_unsigned();
        }
    }
    Ok(counts)
}

/// Names are looked up last: jobs have few definitions. SQLite uses an index of some states only if their condition is repeated.
pub(in crate::store::sqlite) const SQL: &str = "SELECT definitions.name, found.jobs FROM (
        SELECT definition, count(*) AS jobs FROM jobs INDEXED BY jobs_by_state
        WHERE state = 1 AND state <> 2 AND id BETWEEN ?1 AND ?2 GROUP BY definition
    ) AS found JOIN definitions ON definitions.id = found.definition";
