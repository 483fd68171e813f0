//! Rows of hooks: which job was made for which event of which other job.

use std::sync::Arc;

use protocol::{JobId, Timestamp};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row, params};
use scheduler::hooks::{HookEvent, HookRefusal, HookResult, HookRow};

use super::{codes, run_on};
use crate::store::HookRecord;

/// Writes a decision. A second one about the same hook is refused by the schema.
pub(super) fn write(connection: &Connection, row: &HookRow) -> rusqlite::Result<()> {
    let (job, depth, reason) = match row.result {
        HookResult::Made { job, depth } => (Some(job.0.cast_signed()), Some(depth), None),
        HookResult::LeftOut(refusal) => (None, None, Some(refusal.name())),
    };
    connection
        .prepare_cached(
            "INSERT INTO hooks (parent, event, target, at, job, depth, reason)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            row.parent.0.cast_signed(),
            row.event.name(),
            &*row.target,
            row.at.0,
            job,
            depth,
            reason
        ])?;
    Ok(())
}

/// The hook that made a job.
pub(super) fn parent_of(connection: &Connection, job: JobId) -> rusqlite::Result<Option<HookRow>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM hooks WHERE job = ?1"))?
        .query_row([job.0.cast_signed()], read)
        .optional()
}

/// The hooks of a job with the states of their jobs, in the order of their events.
pub(super) fn of(connection: &Connection, parent: JobId) -> rusqlite::Result<Vec<HookRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, (SELECT state FROM all_jobs WHERE all_jobs.id = hooks.job) FROM hooks WHERE parent = ?1"
    ))?;
    let record = |row: &Row<'_>| {
        let (stored, row) = (row.get::<_, Option<i64>>(7)?.map(codes::state).transpose()?, read(row)?);
        let shown = |(job, state)| run_on::shown_state(connection, job, state);
        let state = row.result.job().zip(stored).map(shown).transpose()?;
        Ok(HookRecord { row, state })
    };
    let mut hooks: Vec<HookRecord> =
        statement.query_map([parent.0.cast_signed()], record)?.collect::<rusqlite::Result<_>>()?;
    hooks.sort_by_key(|hook| (hook.row.event, hook.row.result.job()));
    Ok(hooks)
}

/// Deletes the hooks of which neither the parent nor the job is kept any more, after one of them was deleted.
pub(super) fn remove_unused(connection: &Connection, job: i64) -> rusqlite::Result<()> {
    for column in ["parent", "job"] {
        connection
            .prepare_cached(&format!(
                "DELETE FROM hooks WHERE {column} = ?1
                 AND NOT EXISTS (SELECT 1 FROM all_jobs WHERE all_jobs.id = hooks.parent)
                 AND NOT EXISTS (SELECT 1 FROM all_jobs WHERE all_jobs.id = hooks.job)"
            ))?
            .execute([job])?;
    }
    Ok(())
}

const COLUMNS: &str = "parent, event, target, at, job, depth, reason";

fn read(row: &Row<'_>) -> rusqlite::Result<HookRow> {
    let event: String = row.get(1)?;
    let event = HookEvent::ALL.into_iter().find(|known| known.name() == event);
    let result = match (row.get::<_, Option<i64>>(4)?, row.get(5)?, row.get::<_, Option<String>>(6)?) {
        (Some(job), Some(depth), None) => Some(HookResult::Made { job: JobId(job.cast_unsigned()), depth }),
        (None, None, Some(reason)) => {
            let refusal = HookRefusal::ALL.into_iter().find(|known| known.name() == reason);
            refusal.map(HookResult::LeftOut)
        }
        _ => None,
    };
    Ok(HookRow {
        parent: JobId(row.get::<_, i64>(0)?.cast_unsigned()),
        event: event.ok_or(FromSqlError::InvalidType)?,
        target: Arc::from(row.get::<_, String>(2)?),
        at: Timestamp(row.get(3)?),
        result: result.ok_or(FromSqlError::InvalidType)?,
    })
}
