//! GPUs that current attempts hold.

use std::collections::HashMap;

use protocol::{Fence, JobId};
use rusqlite::Connection;
use scheduler::step::Assigned;

/// Records the GPUs of an attempt that is assigned. Rows of attempts that are not current any more go: there are never many more than GPUs.
pub(super) fn put(connection: &Connection, assigned: &Assigned) -> rusqlite::Result<()> {
    if assigned.gpus.is_empty() {
        return Ok(());
    }
    connection
        .prepare_cached(
            "DELETE FROM gpus WHERE NOT EXISTS
             (SELECT 1 FROM jobs WHERE id = gpus.job AND fence = gpus.fence AND closed_at IS NULL)",
        )?
        .execute([])?;
    let (job, fence) = (assigned.token.job.0.cast_signed(), assigned.token.fence.0.cast_signed());
    connection
        .prepare_cached("INSERT OR REPLACE INTO gpus (job, fence, ids) VALUES (?1, ?2, ?3)")?
        .execute((job, fence, assigned.gpus.join(",")))?;
    Ok(())
}

/// The GPUs of attempts, by job and fence.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<HashMap<(JobId, Fence), Vec<String>>> {
    let mut statement = connection.prepare("SELECT job, fence, ids FROM gpus")?;
    let rows = statement.query_map([], |row| {
        let (job, fence) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned());
        let ids = row.get::<_, String>(2)?.split(',').map(str::to_owned).collect();
        Ok(((JobId(job), Fence(fence)), ids))
    })?;
    rows.collect()
}
