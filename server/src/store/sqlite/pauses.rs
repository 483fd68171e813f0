//! Pauses: rows ↔ meaning.

use std::borrow::Cow;

use protocol::JobId;
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Row};
use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;

use super::interventions;

/// Writes a pause, or removes it.
pub(super) fn put(
    connection: &Connection,
    target: &PauseTarget,
    pause: Option<&Intervention>,
) -> rusqlite::Result<()> {
    let (kind, name, schedule) = columns(target);
    let name = &*name;
    match pause {
        Some(pause) => connection
            .prepare_cached(
                "INSERT INTO pauses (kind, name, schedule, since, paused_by, reason, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT DO UPDATE SET since = ?4, paused_by = ?5, reason = ?6, until = ?7",
            )?
            .execute((
                kind,
                name,
                schedule,
                pause.since.0,
                interventions::by(pause),
                pause.origin.reason.as_deref(),
                pause.until.map(|until| until.0),
            ))?,
        None => connection
            .prepare_cached("DELETE FROM pauses WHERE kind = ?1 AND name = ?2 AND schedule = ?3")?
            .execute((kind, name, schedule))?,
    };
    Ok(())
}

/// All pauses, ordered by target.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<(PauseTarget, Intervention)>> {
    let mut statement = connection
        .prepare_cached("SELECT kind, name, schedule, since, paused_by, reason, until FROM pauses")?;
    let mut pauses = statement.query_map([], pause)?.collect::<rusqlite::Result<Vec<_>>>()?;
    pauses.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(pauses)
}

fn columns(target: &PauseTarget) -> (&'static str, Cow<'_, str>, &str) {
    match target {
        PauseTarget::Server => ("server", "".into(), ""),
        PauseTarget::Schedules => ("schedules", "".into(), ""),
        PauseTarget::Group(name) => ("group", (&**name).into(), ""),
        PauseTarget::Definition(name) => ("definition", (&**name).into(), ""),
        PauseTarget::Schedule(name, id) => ("schedule", (&**name).into(), id.as_str()),
        PauseTarget::Batch(first) => ("batch", first.to_string().into(), ""),
    }
}

fn pause(row: &Row<'_>) -> rusqlite::Result<(PauseTarget, Intervention)> {
    let (kind, name, id): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let target = match kind.as_str() {
        "server" => PauseTarget::Server,
        "schedules" => PauseTarget::Schedules,
        "group" => PauseTarget::Group(name.into()),
        "definition" => PauseTarget::Definition(name.into()),
        "schedule" => PauseTarget::Schedule(name.into(), ScheduleId::named(&id)),
        "batch" => PauseTarget::Batch(JobId(name.parse().map_err(|_| FromSqlError::InvalidType)?)),
        _ => return Err(FromSqlError::InvalidType.into()),
    };
    // The beginning is never null.
    let pause = interventions::read(row, 3)?.ok_or(FromSqlError::InvalidType)?;
    Ok((target, pause))
}
