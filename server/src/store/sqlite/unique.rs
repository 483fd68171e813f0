//! Unique keys: rows ↔ meaning.

use std::sync::Arc;

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension, params};
use scheduler::unique::{UniqueHolder, UniqueId, UniqueRow};

use super::blocks::BLOCK_SHIFT;

/// Writes who has a key. A job that has lost it is left to retention again.
pub(super) fn put(
    connection: &Connection,
    id: &UniqueId,
    holder: Option<UniqueHolder>,
) -> rusqlite::Result<()> {
    let before: Option<i64> = connection
        .prepare_cached("SELECT job FROM unique_keys WHERE definition = ?1 AND key = ?2")?
        .query_row([&*id.definition, &*id.key], |row| row.get(0))
        .optional()?;
    match holder {
        None => {
            connection
                .prepare_cached("DELETE FROM unique_keys WHERE definition = ?1 AND key = ?2")?
                .execute([&*id.definition, &*id.key])?;
        }
        Some(UniqueHolder { job, predecessor }) => {
            let predecessor = predecessor.map(|job| job.0.cast_signed());
            connection
                .prepare_cached(
                    "INSERT INTO unique_keys (definition, key, job, predecessor) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET job = ?3, predecessor = ?4",
                )?
                .execute(params![&*id.definition, &*id.key, job.0.cast_signed(), predecessor])?;
        }
    }
    let holder = holder.map(|holder| holder.job.0.cast_signed());
    if let Some(before) = before.filter(|before| Some(*before) != holder) {
        let block = before >> BLOCK_SHIFT;
        connection
            .prepare_cached(
                "UPDATE blocks SET oldest_end = min(coalesce(oldest_end, ended_at), ended_at)
                 FROM ended WHERE ended.id = ?1 AND block = ?2",
            )?
            .execute([before, block])?;
    }
    Ok(())
}

/// All keys that are taken.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<UniqueRow>> {
    let mut statement = connection
        .prepare("SELECT definition, key, job, predecessor FROM unique_keys ORDER BY definition, key")?;
    let number = |number: i64| JobId(number.cast_unsigned());
    let found = statement.query_map([], |row| {
        let text = |index| row.get::<_, String>(index).map(Arc::from);
        let (job, predecessor) = (number(row.get(2)?), row.get::<_, Option<i64>>(3)?.map(number));
        let id = UniqueId { definition: text(0)?, key: text(1)? };
        Ok(UniqueRow { id, holder: Some(UniqueHolder { job, predecessor }) })
    })?;
    found.collect()
}
