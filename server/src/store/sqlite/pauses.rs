//! Pauses: rows ↔ meaning.

use protocol::Timestamp;
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Row};
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;

/// Writes a pause, or removes it.
pub(super) fn put(
    connection: &Connection,
    target: &PauseTarget,
    since: Option<Timestamp>,
) -> rusqlite::Result<()> {
    let (kind, name, schedule) = columns(target);
    match since {
        Some(since) => connection
            .prepare_cached(
                "INSERT INTO pauses (kind, name, schedule, since) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            )?
            .execute((kind, name, schedule, since.0))?,
        None => connection
            .prepare_cached("DELETE FROM pauses WHERE kind = ?1 AND name = ?2 AND schedule = ?3")?
            .execute((kind, name, schedule))?,
    };
    Ok(())
}

/// All pauses, with their beginnings.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<(PauseTarget, Timestamp)>> {
    let mut statement =
        connection.prepare_cached("SELECT kind, name, schedule, since FROM pauses ORDER BY 1, 2, 3")?;
    let mut pauses = statement.query_map([], pause)?.collect::<rusqlite::Result<Vec<_>>>()?;
    pauses.sort();
    Ok(pauses)
}

fn columns(target: &PauseTarget) -> (&'static str, &str, &str) {
    match target {
        PauseTarget::Server => ("server", "", ""),
        PauseTarget::Schedules => ("schedules", "", ""),
        PauseTarget::Group(name) => ("group", name, ""),
        PauseTarget::Definition(name) => ("definition", name, ""),
        PauseTarget::Schedule(name, id) => ("schedule", name, id.as_str()),
    }
}

fn pause(row: &Row<'_>) -> rusqlite::Result<(PauseTarget, Timestamp)> {
    let (kind, name, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let target = match kind.as_str() {
        "server" => PauseTarget::Server,
        "schedules" => PauseTarget::Schedules,
        "group" => PauseTarget::Group(name.into()),
        "definition" => PauseTarget::Definition(name.into()),
        "schedule" => PauseTarget::Schedule(name.into(), ScheduleId::named(&id)),
        _ => return Err(FromSqlError::InvalidType.into()),
    };
    Ok((target, Timestamp(row.get(3)?)))
}
