//! A job with its attempts and notes, and the facts about a job that are rows of other tables.

use protocol::{AttemptNo, JobId};
use rusqlite::{Connection, OptionalExtension, Row};
use scheduler::batches::BatchMember;
use scheduler::dependencies::PredecessorId;
use scheduler::details::JobDetails;
use scheduler::job::State;

use super::{dependencies, failures, hooks, json_column, param_rows, positions, rows, run_on, schedules};
use crate::store::{DEPENDENCIES_SHOWN, GivenParams, JobRecord, JobRow, OutputLimits, RunOnRole};

/// Adds the slot of a job, its position in its batch, its part in a set with the state that follows from it, the job that it waits for, and the
/// attention that it needs.
pub(super) fn complete(connection: &Connection, row: &mut JobRow) -> rusqlite::Result<()> {
    row.slot = schedules::slot(connection, row.job, row.retry_of.is_some())?;
    row.position = positions::of(connection, row)?;
    row.run_on_role = run_on::run_on_role(connection, row.job)?;
    if let RunOnRole::Parent(parent) = &row.run_on_role
        && row.state == State::Queued
        && parent.started_at.is_some()
    {
        row.state = State::Running;
    }
    if row.state == State::Scheduled {
        row.waits_for = dependencies::first_open(connection, row.job)?;
    }
    if row.state.is_failure() {
        row.failure = failures::status(connection, row.job)?;
    }
    Ok(())
}

/// A job with all of its attempts and notes.
pub(super) fn record(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRecord>> {
    let number = id.0.cast_signed();
    let sql = format!("SELECT {} FROM all_jobs j {} WHERE j.id = ?1", rows::JOB_COLUMNS, rows::JOB_JOINS);
    let Some((mut row, flags)) =
        connection.prepare_cached(&sql)?.query_row([number], rows::job).optional()?
    else {
        return Ok(None);
    };
    rows::add_details(connection, &mut row, flags)?;
    complete(connection, &mut row)?;
    let sql = format!(
        "SELECT {} FROM past_attempts a LEFT JOIN workers w ON w.id = a.worker WHERE a.job = ?1 ORDER BY a.fence",
        rows::ATTEMPT_COLUMNS
    );
    let past = connection
        .prepare_cached(&sql)?
        .query_map([number], |row| rows::attempt(row, AttemptNo(row.get(0)?), 1))?
        .collect::<rusqlite::Result<_>>()?;
    let notes = connection
        .prepare_cached("SELECT at, kind, fence, nonce, worker, text FROM notes WHERE job = ?1 ORDER BY id")?
        .query_map([number], |row| rows::note(row, id))?
        .collect::<rusqlite::Result<_>>()?;
    let late_left_out: Option<i64> = connection
        .prepare_cached("SELECT late_reports FROM left_out WHERE job = ?1")?
        .query_row([number], |row| row.get(0))
        .optional()?;
    let retry_of_removed = match row.retry_of {
        Some(earlier) => !is_kept(connection, earlier)?,
        None => false,
    };
    let retried_as = match row.state.has_ended() {
        true => dependencies::latest_retry(connection, id)?,
        false => None,
    };
    let JobDetails { overrides, params, .. } = rows::details(connection, id)?.unwrap_or_default();
    let late_left_out = late_left_out.unwrap_or(0).cast_unsigned();
    let (parent, hooks) = (hooks::parent_of(connection, id)?, hooks::of(connection, id)?);
    let params = params.given;
    let after = dependencies::of(connection, id, DEPENDENCIES_SHOWN)?;
    let dependents = dependencies::dependents(connection, PredecessorId::Job(id), DEPENDENCIES_SHOWN)?;
    Ok(Some(JobRecord {
        row,
        overrides,
        params,
        past,
        notes,
        late_left_out,
        retry_of_removed,
        retried_as,
        parent,
        hooks,
        after,
        dependents,
    }))
}

/// The parameters of a job, and the position that it was given if it repeats a member of a batch. Its input is not read.
pub(super) fn given_params(connection: &Connection, id: JobId) -> rusqlite::Result<GivenParams> {
    let mut statement = connection.prepare_cached(
        "SELECT environment, params FROM details
             WHERE job = coalesce((SELECT parent FROM members WHERE members.job = ?1), ?1)",
    )?;
    let read = |row: &Row<'_>| {
        let environment: Vec<(String, String)> = json_column::read(row, 0)?.unwrap_or_default();
        let index = environment.iter().find(|(name, _)| name == BatchMember::INDEX_VARIABLE);
        Ok(GivenParams {
            params: param_rows::read_given(row, 1)?,
            index: index.and_then(|(_, value)| value.parse().ok()),
        })
    };
    Ok(statement.query_row([id.0.cast_signed()], read).optional()?.unwrap_or_default())
}

/// The output of a job is kept: it has not ended, or not before the instant for its definition.
pub(super) fn has_output(
    connection: &Connection,
    id: JobId,
    limits: &OutputLimits,
) -> rusqlite::Result<bool> {
    let found: Option<(Option<i64>, String)> = connection
        .prepare_cached(
            "SELECT j.ended_at, d.name FROM all_jobs j JOIN definitions d ON d.id = j.definition WHERE j.id = ?1",
        )?
        .query_row([id.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.is_some_and(|(ended_at, name)| {
        ended_at.is_none_or(|at| limits.get(&name).is_none_or(|since| at >= since.0))
    }))
}

/// The job has not been deleted.
pub(super) fn is_kept(connection: &Connection, id: JobId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM all_jobs WHERE id = ?1")?.exists([id.0.cast_signed()])
}
