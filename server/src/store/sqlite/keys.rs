//! Idempotency keys.

use protocol::JobId;
use rusqlite::{Connection, OptionalExtension};
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;

use super::installation::last_commit;

/// The jobs behind a key, and the last commit that this connection sees.
pub(super) fn key(connection: &Connection, key: &str) -> rusqlite::Result<(Option<KeyHolder>, GroupNo)> {
    let committed = last_commit(connection)?;
    let holder = connection
        .prepare_cached("SELECT job, count, digest FROM keys WHERE key = ?1")?
        .query_row([key], |row| {
            let (job, count, digest) = (row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?);
            Ok(KeyHolder { job: JobId(job.cast_unsigned()), count, digest: u128::from_be_bytes(digest) })
        })
        .optional()?;
    Ok((holder, committed))
}

/// The keys that begin with this text, by a range of the primary key: SQLite compares the bytes of UTF-8, in the order of the characters.
pub(super) fn keys_with(connection: &Connection, prefix: &str) -> rusqlite::Result<Vec<String>> {
    let (sql, end) = ("SELECT key FROM keys WHERE key >= ?1 AND key < ?2", format!("{prefix}{}", char::MAX));
    connection.prepare_cached(sql)?.query_map((prefix, end), |row| row.get(0))?.collect()
}
