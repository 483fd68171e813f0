//! State of expectations by the name of their definition: rows ↔ meaning.

use protocol::{JobId, Timestamp};
use rusqlite::{Connection, Row, params};
use scheduler::expectations::{ExpectationRow, SlowRun};

pub(super) fn put(connection: &Connection, row: &ExpectationRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO expectations (definition, awaited_since, stale_since, slow_since, slow_job)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE SET awaited_since = ?2, stale_since = ?3, slow_since = ?4, slow_job = ?5",
        )?
        .execute(params![
            &*row.definition,
            row.awaited_since.map(|at| at.0),
            row.stale_since.map(|at| at.0),
            row.slow.map(|slow| slow.since.0),
            row.slow.map(|slow| slow.job.0.cast_signed()),
        ])?;
    Ok(())
}

pub(super) fn drop_one(connection: &Connection, definition: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM expectations WHERE definition = ?1")?.execute([definition])?;
    Ok(())
}

/// All of them, by name.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<ExpectationRow>> {
    let mut statement = connection.prepare(
        "SELECT definition, awaited_since, stale_since, slow_since, slow_job FROM expectations ORDER BY definition",
    )?;
    statement.query_map([], expectation)?.collect()
}

fn expectation(row: &Row<'_>) -> rusqlite::Result<ExpectationRow> {
    let instant = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(Timestamp));
    let slow = instant(3)?.zip(row.get::<_, Option<i64>>(4)?);
    Ok(ExpectationRow {
        definition: row.get::<_, String>(0)?.into(),
        awaited_since: instant(1)?,
        stale_since: instant(2)?,
        slow: slow.map(|(since, job)| SlowRun { job: JobId(job.cast_unsigned()), since }),
    })
}
