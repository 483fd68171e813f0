//! Rows ↔ meaning: the pieces that more than one query shares.

use std::sync::Arc;
use std::time::Duration;

use protocol::container::Overrides;
use protocol::report::OutputLengths;
use protocol::{AttemptNo, Fence, Incarnation, JobId, Nonce, Revision, Timestamp, Token, WorkerId};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row};
use scheduler::details::JobDetails;
use scheduler::fleet::row::{Drain, Process, WorkerRow};
use scheduler::ids::JoinTokenId;
use scheduler::job::AttemptTimeout;
use scheduler::placement::narrowing::Narrowing;
use scheduler::step::Note;

use super::{codes, interventions, json_column, param_rows, usage_column};
use crate::store::{AttemptRow, FailureStatus, JobRow, RunOnRole, StoredDefinition};

/// In `jobs.details`: the job has labels.
pub(super) const HAS_LABELS: i64 = 1;
/// In `jobs.details`: the job adds something to its definition. The next bit, 4, is set in rows that an earlier version wrote.
pub(super) const HAS_OVERRIDES: i64 = 2;
/// In `jobs.details`: the job asks for some workers.
pub(super) const HAS_NARROWING: i64 = 8;

/// The columns that [`job`] reads, in its order, from `all_jobs j`, `jobs j` or `ended j`, joined with `definitions d` and `workers w`.
pub(super) const JOB_COLUMNS: &str = "j.id, d.name, d.revision, j.state, j.priority, j.created_at, j.due_at, j.timeout_ms, \
     j.batch, j.retry_of, j.details, j.ended_at, j.reason, j.confirmed, j.attempts, j.fence, j.nonce, j.worker, w.name, \
     j.assigned_at, j.started_at, j.container, j.stopping, j.closed_at, j.outcome, j.exit_code, j.message, j.stdout_bytes, \
     j.stderr_bytes, j.result, j.released, j.usage, (SELECT at FROM expiries WHERE expiries.job = j.id), \
     (SELECT name FROM submitters WHERE submitters.id = j.submitter)";

/// The joins that [`JOB_COLUMNS`] needs. `CROSS` keeps the order of tables: jobs lead, names follow.
pub(super) const JOB_JOINS: &str =
    "CROSS JOIN definitions d ON d.id = j.definition LEFT JOIN workers w ON w.id = j.worker";

/// The columns that [`attempt`] reads from `past_attempts a` joined with `workers w`, beginning with the number.
pub(super) const ATTEMPT_COLUMNS: &str = "a.number, a.fence, a.nonce, a.worker, w.name, a.assigned_at, a.started_at, a.container, \
     a.stopping, a.closed_at, a.outcome, a.exit_code, a.message, a.stdout_bytes, a.stderr_bytes, a.result, a.released, \
     a.usage";

/// A job without what [`add_details`] adds, and the bit flags of that.
pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<(JobRow, i64)> {
    let id = |index: usize| row.get::<_, Option<i64>>(index).map(|id| id.map(|id| JobId(id.cast_unsigned())));
    let attempts = AttemptNo(row.get(14)?);
    let found = JobRow {
        job: JobId(row.get::<_, i64>(0)?.cast_unsigned()),
        definition: row.get(1)?,
        revision: Revision(u128::from_be_bytes(row.get(2)?)),
        state: codes::state(row.get(3)?)?,
        priority: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
        due_at: Timestamp(row.get(6)?),
        expires_at: row.get::<_, Option<i64>>(32)?.map(Timestamp),
        timeout: row.get::<_, Option<i64>>(7)?.map(timeout),
        batch: id(8)?,
        position: None,
        retry_of: id(9)?,
        submitted_by: row.get(33)?,
        slot: None,
        waits_for: None,
        run_on_role: RunOnRole::Alone,
        labels: Vec::new(),
        narrowing: None,
        ended_at: row.get::<_, Option<i64>>(11)?.map(Timestamp),
        reason: text(row, 12)?,
        confirmed: row.get(13)?,
        failure: FailureStatus::None,
        attempts,
        attempt: match row.get_ref(15)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(attempt(row, attempts, 15)?),
        },
    };
    Ok((found, row.get(10)?))
}

/// Adds what the flags of a job say: its labels, and the workers that it asks for.
pub(super) fn add_details(connection: &Connection, row: &mut JobRow, flags: i64) -> rusqlite::Result<()> {
    if flags & HAS_LABELS != 0 {
        row.labels = labels(connection, row.job)?;
    }
    if flags & HAS_NARROWING != 0 {
        row.narrowing = narrowing(connection, row.job)?;
    }
    Ok(())
}

/// The workers that a job asks for.
pub(super) fn narrowing(connection: &Connection, job: JobId) -> rusqlite::Result<Option<Arc<Narrowing>>> {
    let mut statement = connection.prepare_cached("SELECT narrowing FROM details WHERE job = ?1")?;
    let found = statement.query_row([job.0.cast_signed()], |row| json_column::read(row, 0)).optional()?;
    Ok(found.flatten().map(Arc::new))
}

/// An attempt whose columns begin with the fence at this index.
pub(super) fn attempt(row: &Row<'_>, number: AttemptNo, at: usize) -> rusqlite::Result<AttemptRow> {
    let unsigned = |index: usize| row.get::<_, i64>(at + index).map(i64::cast_unsigned);
    let maybe = |index: usize| row.get::<_, Option<i64>>(at + index);
    Ok(AttemptRow {
        number,
        fence: Fence(unsigned(0)?),
        nonce: Nonce(unsigned(1)?),
        worker: WorkerId(unsigned(2)?),
        worker_name: row.get::<_, Option<String>>(at + 3)?.map_or_else(|| Arc::from(""), Arc::from),
        assigned_at: Timestamp(row.get(at + 4)?),
        started_at: maybe(5)?.map(Timestamp),
        container: text(row, at + 6)?,
        stopping: maybe(7)?.map(codes::stop).transpose()?,
        ended_at: maybe(8)?.map(Timestamp),
        outcome: maybe(9)?.map(codes::outcome).transpose()?,
        exit_code: row.get(at + 10)?,
        message: text(row, at + 11)?,
        output: OutputLengths {
            stdout: maybe(12)?.unwrap_or(0).cast_unsigned(),
            stderr: maybe(13)?.unwrap_or(0).cast_unsigned(),
        },
        result: row.get(at + 14)?,
        released: maybe(15)?.map(codes::release).transpose()?,
        usage: usage_column::read(row, at + 16)?,
    })
}

/// A definition whose columns begin with the revision at this index.
pub(super) fn definition(row: &Row<'_>, at: usize) -> rusqlite::Result<StoredDefinition> {
    Ok(StoredDefinition {
        revision: Revision(u128::from_be_bytes(row.get(at)?)),
        name: row.get(at + 1)?,
        entry: row.get(at + 2)?,
    })
}

/// The columns that [`worker_row`] reads.
const WORKER_COLUMNS: &str = "id, name, secret_hash, joined_at, seen_at, cordoned, slots, drain, drain_process, drain_deadline, \
     labels, incarnation, process, join_token, granted, revoked_at, cordoned_at, cordoned_by, cordon_reason, cordoned_until";

/// Every worker that was not forgotten, by id.
pub(super) fn workers(connection: &Connection) -> rusqlite::Result<Vec<WorkerRow>> {
    let sql = format!("SELECT {WORKER_COLUMNS} FROM workers WHERE NOT forgotten ORDER BY id");
    connection.prepare_cached(&sql)?.query_map([], worker_row)?.collect()
}

/// One worker, unless it was forgotten.
pub(super) fn worker(connection: &Connection, id: WorkerId) -> rusqlite::Result<Option<WorkerRow>> {
    let sql = format!("SELECT {WORKER_COLUMNS} FROM workers WHERE id = ?1 AND NOT forgotten");
    connection.prepare_cached(&sql)?.query_row([id.0.cast_signed()], worker_row).optional()
}

/// Workers that were not heard since their connection ended without their leaving, and when that was.
pub(super) fn lost_workers(connection: &Connection) -> rusqlite::Result<Vec<(WorkerId, Timestamp)>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, lost_at FROM workers WHERE lost_at > seen_at AND NOT forgotten ORDER BY id",
    )?;
    let lost = |row: &Row<'_>| Ok((WorkerId(row.get::<_, i64>(0)?.cast_unsigned()), Timestamp(row.get(1)?)));
    statement.query_map([], lost)?.collect()
}

fn worker_row(row: &Row<'_>) -> rusqlite::Result<WorkerRow> {
    let drain = Drain {
        process: row.get::<_, Option<i64>>(8)?.map(|start| Incarnation(start.cast_unsigned())),
        deadline: row.get::<_, Option<i64>>(9)?.map(Timestamp),
    };
    let process = row.get::<_, Option<i64>>(11)?.zip(row.get::<_, Option<i64>>(12)?);
    Ok(WorkerRow {
        worker: WorkerId(row.get::<_, i64>(0)?.cast_unsigned()),
        name: row.get::<_, String>(1)?.into(),
        secret_hash: row.get(2)?,
        joined_at: Timestamp(row.get(3)?),
        seen_at: Timestamp(row.get(4)?),
        cordoned: row.get(5)?,
        cordon: interventions::read(row, 16)?,
        slots: row.get(6)?,
        drain: row.get::<_, bool>(7)?.then_some(drain),
        labels: json_column::read(row, 10)?.unwrap_or_default(),
        process: process.map(|(incarnation, number)| Process {
            incarnation: Incarnation(incarnation.cast_unsigned()),
            number: number.cast_unsigned(),
        }),
        join_token: row.get::<_, Option<i64>>(13)?.map(|id| JoinTokenId(id.cast_unsigned())),
        granted: json_column::read(row, 14)?.unwrap_or_default(),
        revoked_at: row.get::<_, Option<i64>>(15)?.map(Timestamp),
    })
}

/// The labels of a job.
pub(super) fn labels(connection: &Connection, job: JobId) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare_cached("SELECT labels FROM details WHERE job = ?1")?;
    let found = statement.query_row([job.0.cast_signed()], |row| json_column::read(row, 0)).optional()?;
    Ok(found.flatten().unwrap_or_default())
}

/// Overrides and parameters of a job; none if it has neither. A member has those of its parent. The labels are not read.
pub(super) fn details(connection: &Connection, job: JobId) -> rusqlite::Result<Option<JobDetails>> {
    let mut statement = connection.prepare_cached(
        "SELECT environment, args, input, params, filled_in FROM details
             WHERE job = coalesce((SELECT parent FROM members WHERE members.job = ?1), ?1)",
    )?;
    let read = |row: &Row<'_>| {
        let overrides = Overrides {
            environment: json_column::read(row, 0)?.unwrap_or_default(),
            args: json_column::read(row, 1)?.unwrap_or_default(),
            input: row.get(2)?,
        };
        Ok(JobDetails { overrides, params: param_rows::read(row, 3)?, ..JobDetails::default() })
    };
    let found = statement.query_row([job.0.cast_signed()], read).optional()?;
    Ok(found.filter(JobDetails::has_overrides))
}

/// The columns of a note: kind, fence, nonce, worker, text.
pub(super) type NoteColumns<'n> = (i64, Option<i64>, Option<i64>, Option<i64>, Option<&'n str>);

pub(super) fn note_columns(note: &Note) -> NoteColumns<'_> {
    let of = |token: &Token, worker: &WorkerId| {
        (Some(token.fence.0.cast_signed()), Some(token.nonce.0.cast_signed()), Some(worker.0.cast_signed()))
    };
    let (kind, (fence, nonce, worker), text) = match note {
        Note::CancelRequested { by } => (1, (None, None, None), Some(by.as_str())),
        Note::LateReport { token, worker, said } => (2, of(token, worker), Some(said.as_str())),
        Note::Unreachable { token, worker } => (3, of(token, worker), None),
        Note::Revived { token, worker } => (4, of(token, worker), None),
        Note::Released { by } => (5, (None, None, None), Some(by.as_str())),
        Note::ContainerGone { token, worker } => (6, of(token, worker), None),
        // The columns of an attempt's token hold the start and the priority.
        Note::Updated { by, due_at, priority } => {
            (7, (Some(due_at.0), Some(i64::from(*priority)), None), Some(by.as_str()))
        }
        Note::ResultLeftOut { why } => (8, (None, None, None), Some(why.as_str())),
        Note::WorkersLeftOut { workers } => (9, (None, None, None), Some(workers.as_str())),
    };
    (kind, fence, nonce, worker, text)
}

/// A note whose columns begin with its instant.
pub(super) fn note(row: &Row<'_>, job: JobId) -> rusqlite::Result<(Timestamp, Note)> {
    let unsigned = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let token =
        || Ok::<_, rusqlite::Error>(Token { job, fence: Fence(unsigned(2)?), nonce: Nonce(unsigned(3)?) });
    let worker = || unsigned(4).map(WorkerId);
    let note = match row.get(1)? {
        1 => Note::CancelRequested { by: text(row, 5)? },
        2 => Note::LateReport { token: token()?, worker: worker()?, said: text(row, 5)? },
        3 => Note::Unreachable { token: token()?, worker: worker()? },
        4 => Note::Revived { token: token()?, worker: worker()? },
        5 => Note::Released { by: text(row, 5)? },
        6 => Note::ContainerGone { token: token()?, worker: worker()? },
        7 => Note::Updated { by: text(row, 5)?, due_at: Timestamp(row.get(2)?), priority: row.get(3)? },
        8 => Note::ResultLeftOut { why: text(row, 5)? },
        9 => Note::WorkersLeftOut { workers: text(row, 5)? },
        other => return Err(FromSqlError::OutOfRange(other).into()),
    };
    Ok((Timestamp(row.get(0)?), note))
}

/// The stored form of a job's own timeout: milliseconds, −1 for an unlimited one.
pub(super) fn timeout_code(timeout: AttemptTimeout) -> i64 {
    timeout.limit().map_or(-1, |limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
}

pub(super) fn timeout(code: i64) -> AttemptTimeout {
    u64::try_from(code)
        .map_or(AttemptTimeout::Unlimited, |millis| AttemptTimeout::After(Duration::from_millis(millis)))
}

/// The instants of losses, as JSON.
pub(super) fn losses(row: &Row<'_>, index: usize) -> rusqlite::Result<Vec<Timestamp>> {
    let instants: Option<Vec<i64>> = json_column::read(row, index)?;
    Ok(instants.unwrap_or_default().into_iter().map(Timestamp).collect())
}

/// Empty texts are stored as null.
fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<String> {
    Ok(row.get::<_, Option<String>>(index)?.unwrap_or_default())
}
