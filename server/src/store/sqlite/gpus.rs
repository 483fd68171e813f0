//! GPUs that attempts hold: current ones, and lost ones whose containers may still exist.

use std::collections::{BTreeMap, HashMap};

use protocol::{Fence, JobId};
use rusqlite::Connection;
use scheduler::step::{Assigned, Change};

use crate::store::Group;

/// Ids of GPUs by the fence of the attempt that holds them.
type Held = BTreeMap<Fence, Vec<String>>;

/// Deletes the rows of attempts that hold their GPUs no longer, if the group assigns GPUs. So there are never many more rows than GPUs.
pub(super) fn delete_free(connection: &Connection, group: &Group) -> rusqlite::Result<()> {
    let takes_gpus = |change: &Change| matches!(change, Change::Assigned(it) if !it.gpus.is_empty());
    if group.changes.iter().any(takes_gpus) {
        connection.prepare_cached(include_str!("queries/delete_free_gpus.sql"))?.execute([])?;
    }
    Ok(())
}

/// Records the GPUs of an attempt that is assigned.
pub(super) fn put(connection: &Connection, assigned: &Assigned) -> rusqlite::Result<()> {
    if assigned.gpus.is_empty() {
        return Ok(());
    }
    let (job, fence) = (assigned.token.job.0.cast_signed(), assigned.token.fence.0.cast_signed());
    connection
        .prepare_cached("INSERT OR REPLACE INTO gpus (job, fence, ids) VALUES (?1, ?2, ?3)")?
        .execute((job, fence, assigned.gpus.join(",")))?;
    Ok(())
}

/// The GPUs of attempts, by job.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<HashMap<JobId, Held>> {
    let mut statement = connection.prepare("SELECT job, fence, ids FROM gpus")?;
    let mut rows = statement.query([])?;
    let mut held: HashMap<JobId, Held> = HashMap::new();
    while let Some(row) = rows.next()? {
        let (job, fence) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned());
        let ids = row.get::<_, String>(2)?.split(',').map(str::to_owned).collect();
        held.entry(JobId(job)).or_default().insert(Fence(fence), ids);
    }
    Ok(held)
}
