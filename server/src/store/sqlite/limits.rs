//! Keys of limits and the state of rates: rows ↔ meaning.

use std::sync::Arc;

use protocol::Timestamp;
use rusqlite::{Connection, Row, params};
use scheduler::limits::keys::JobKeys;
use scheduler::limits::{LimitId, LimitKind, RateRow};

/// The keys of a job from the columns `first` (of concurrency) and the next one (of the rate); absent if both are null. The permits of a batch
/// are no column of the job: they follow from its batch, which the scheduler has.
pub(super) fn keys(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Box<JobKeys>>> {
    let text = |index| row.get::<_, Option<String>>(index).map(|text| text.map(Arc::from));
    let keys = JobKeys { concurrency: text(first)?, rate: text(first + 1)?, batch: None };
    Ok((keys != JobKeys::default()).then(|| Box::new(keys)))
}

/// Stores the time at which a rate will have recovered, and deletes at most two rows of rates that have. That is one more than is written, so
/// the table shrinks.
pub(super) fn put_rate(
    connection: &Connection,
    id: &LimitId,
    recovered: Timestamp,
    at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO rates (name, has_key, key, recovered_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT DO UPDATE SET recovered_at = ?4",
        )?
        .execute(params![&*id.name, id.key.is_some(), id.key.as_deref().unwrap_or_default(), recovered.0])?;
    connection
        .prepare_cached(
            "DELETE FROM rates WHERE (name, has_key, key) IN
             (SELECT name, has_key, key FROM rates WHERE recovered_at < ?1 ORDER BY recovered_at LIMIT 2)",
        )?
        .execute([at.0])?;
    Ok(())
}

/// The state of all rates that are stored. Some may have recovered since.
pub(super) fn rates(connection: &Connection) -> rusqlite::Result<Vec<RateRow>> {
    let mut statement = connection
        .prepare("SELECT name, has_key, key, recovered_at FROM rates ORDER BY name, has_key, key")?;
    let found = statement.query_map([], |row| {
        let key: String = row.get(2)?;
        let key = row.get::<_, bool>(1)?.then(|| Arc::from(key));
        let id = LimitId { kind: LimitKind::Rate, name: Arc::from(row.get::<_, String>(0)?), key };
        Ok(RateRow { id, recovered: Timestamp(row.get(3)?) })
    })?;
    found.collect()
}
