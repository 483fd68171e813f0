//! Turns the write to one job into one or a few SQL statements.
//!
//! Each says in its `WHERE` what the row must have been before; a row count other than one is a refusal, which names what was
//! expected and what is there.

use protocol::{JobId, Timestamp, Token, WorkerId};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OptionalExtension, params, params_from_iter};
use scheduler::definition::RetryPolicy;
use scheduler::job::State;
use scheduler::retry::{self, RetryBudget};
use scheduler::step::{AddedJob, Assigned, ClosedAttempt, Note, Updated};

use super::{Failure, TransactionWriter, WriteResult};
use crate::store::fold::{Expected, JobWrite, Waiting};
use crate::store::sqlite::blocks::{BLOCK_SHIFT, SEEN_NAME};
use crate::store::sqlite::member_counts::NO_ROW;
use crate::store::sqlite::{codes, json_column, notes, rows, slots, usage_column};

impl TransactionWriter<'_> {
    pub(super) fn job(&mut self, write: &JobWrite<'_>) -> WriteResult {
        if let Some(updated) = write.updated {
            return self.update(write, updated);
        }
        if write.freed {
            self.free(write)?;
        }
        match (write.added, write.assigned) {
            (Some(added), assigned) => self.insert(write, added, assigned)?,
            (None, Some(assigned)) => self.assign(write, assigned)?,
            (None, None) if write.due => self.due(write)?,
            (None, None) => {}
        }
        match (write.waiting, write.ended) {
            (Some(waiting), _) => self.wait(write, waiting),
            (None, Some(ended)) => self.end(write, ended),
            (None, None)
                if write.assigned.is_none() && (write.started.is_some() || write.stopping.is_some()) =>
            {
                self.advance(write)
            }
            (None, None) => Ok(()),
        }
    }

    fn insert(&mut self, write: &JobWrite<'_>, added: &AddedJob, assigned: Option<&Assigned>) -> WriteResult {
        let job = added.job.0.cast_signed();
        if !self.is_free(job)? {
            return Err(self.refusal(write.job, Expected::Absent)?);
        }
        self.highest.job = self.highest.job.max(job);
        let block = job >> BLOCK_SHIFT;
        let accepted = added.created_at.0;
        let times = self.blocks.entry(block).or_insert((accepted, accepted));
        *times = (times.0.min(accepted), times.1.max(accepted));
        let definition = self.definition_ids(added.revision)?;
        self.index_block(SEEN_NAME, definition.name, block)?;
        let requester_id = self.requester_id(added.submitted_by.as_ref(), block)?;
        let detail_flags = self.insert_details(job, added)?;
        let keys = added.keys.as_deref();
        let concurrency_key = keys.and_then(|keys| keys.concurrency.as_deref());
        let rate_key = keys.and_then(|keys| keys.rate.as_deref());
        let state = if write.due { State::Queued } else { added.state };
        let state = if assigned.is_some() { live_state(write) } else { codes::of_state(state) };
        let timeout = added.timeout.map(rows::timeout_code);
        let batch = added.batch.map(|job| job.0.cast_signed());
        let retry_of = added.retry_of.map(|job| job.0.cast_signed());
        if let Some(batch) = batch {
            self.cache.members.add(batch, NO_ROW, state);
        }
        self.retries.extend(retry_of.map(|retried| (job, retried)));
        if let Some(retried) = retry_of {
            slots::carry(self.connection, job, retried)?;
        }
        let Some(assigned) = assigned else {
            self.statements.insert_waiting.on(self.connection)?.execute(params![
                job,
                definition.id,
                state,
                added.priority,
                accepted,
                added.due_at.0,
                timeout,
                batch,
                retry_of,
                detail_flags,
                concurrency_key,
                rate_key,
                requester_id,
            ])?;
            return Ok(());
        };
        self.assigned(assigned)?;
        let (started_at, container) = started(write);
        self.statements.insert_assigned.on(self.connection)?.execute(params![
            job,
            definition.id,
            state,
            added.priority,
            accepted,
            added.due_at.0,
            timeout,
            batch,
            retry_of,
            detail_flags,
            concurrency_key,
            rate_key,
            requester_id,
            assigned.number.0,
            assigned.token.fence.0.cast_signed(),
            assigned.token.nonce.0.cast_signed(),
            assigned.worker.0.cast_signed(),
            assigned.session.0.cast_signed(),
            assigned.at.0,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ])?;
        Ok(())
    }

    fn assign(&mut self, write: &JobWrite<'_>, assigned: &Assigned) -> WriteResult {
        self.assigned(assigned)?;
        let job = write.job.0.cast_signed();
        let before = codes::of_state(if write.due { State::Scheduled } else { State::Queued });
        let (started_at, container) = started(write);
        let values = params![
            job,
            before,
            live_state(write),
            assigned.number.0,
            assigned.token.fence.0.cast_signed(),
            assigned.token.nonce.0.cast_signed(),
            assigned.worker.0.cast_signed(),
            assigned.session.0.cast_signed(),
            assigned.at.0,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ];
        self.member_moves(job, before, live_state(write))?;
        if self.statements.assign.on(self.connection)?.execute(values)? == 1 {
            return Ok(());
        }
        // Not its first attempt, or not as expected.
        let superseded = self
            .connection
            .prepare_cached(include_str!("../queries/supersede.sql"))?
            .execute((job, before))?;
        if superseded == 0 {
            return Err(self.refusal(write.job, write.expected)?);
        }
        self.connection.prepare_cached(include_str!("../queries/reassign.sql"))?.execute(values)?;
        Ok(())
    }

    /// By the worker that had this attempt, the last one that was in doubt. Where it is confirmed already, or not kept any more, nothing
    /// changes.
    pub(super) fn confirm(&self, token: Token, worker: WorkerId, at: Timestamp) -> WriteResult {
        let changed = self
            .connection
            .prepare_cached(
                "UPDATE ended SET confirmed = 1 WHERE id = ?1 AND state = 8 AND confirmed = 0
                 AND EXISTS (SELECT 1 FROM all_attempts WHERE job = ?1 AND fence = ?2 AND nonce = ?3 AND worker = ?4)",
            )?
            .execute([token.job.0, token.fence.0, token.nonce.0, worker.0].map(u64::cast_signed))?;
        if changed == 1 {
            notes::write(self.connection, token.job, at, &Note::ContainerGone { token, worker })?;
        }
        Ok(())
    }

    /// The deadline of a job's present wait.
    pub(super) fn expiry(&self, job: JobId, at: Option<Timestamp>) -> WriteResult {
        let job = job.0.cast_signed();
        match at {
            Some(at) => self
                .connection
                .prepare_cached(
                    "INSERT INTO expiries (job, at) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET at = ?2",
                )?
                .execute((job, at.0))?,
            None => self.connection.prepare_cached("DELETE FROM expiries WHERE job = ?1")?.execute([job])?,
        };
        Ok(())
    }

    fn free(&mut self, write: &JobWrite<'_>) -> WriteResult {
        let (from, to) = (codes::of_state(State::Quarantined), codes::of_state(State::Queued));
        self.member_moves(write.job.0.cast_signed(), from, to)?;
        let changed = self
            .connection
            .prepare_cached("UPDATE jobs SET state = 2, losses = NULL WHERE id = ?1 AND state = 5")?
            .execute([write.job.0.cast_signed()])?;
        self.expect_one_row(changed, write)
    }

    fn update(&mut self, write: &JobWrite<'_>, updated: &Updated) -> WriteResult {
        self.member_moves_to(write.job.0.cast_signed(), codes::of_state(updated.state))?;
        let changed = self
            .connection
            .prepare_cached(
                "UPDATE jobs SET state = ?2, due_at = ?3, priority = ?4 WHERE id = ?1 AND state IN (1, 2)",
            )?
            .execute(params![
                write.job.0.cast_signed(),
                codes::of_state(updated.state),
                updated.due_at.0,
                updated.priority,
            ])?;
        self.expect_one_row(changed, write)
    }

    fn due(&mut self, write: &JobWrite<'_>) -> WriteResult {
        let (from, to) = (codes::of_state(State::Scheduled), codes::of_state(State::Queued));
        self.member_moves(write.job.0.cast_signed(), from, to)?;
        let changed = self.statements.due.on(self.connection)?.execute([write.job.0.cast_signed()])?;
        self.expect_one_row(changed, write)
    }

    fn advance(&mut self, write: &JobWrite<'_>) -> WriteResult {
        let Some(held) = Held::of(write) else { return Ok(()) };
        if write.started.is_some() {
            let (from, to) = (codes::of_state(State::Assigned), codes::of_state(State::Running));
            self.member_moves(held.job, from, to)?;
        }
        let (started_at, container) = started(write);
        let changed = self.statements.advance.on(self.connection)?.execute(params![
            held.job,
            held.fence,
            held.nonce,
            held.highest_state,
            started_at,
            container,
            write.stopping.map(codes::of_stop),
        ])?;
        self.expect_one_row(changed, write)
    }

    fn wait(&mut self, write: &JobWrite<'_>, waiting: Waiting<'_>) -> WriteResult {
        self.member_moves_to(write.job.0.cast_signed(), codes::of_state(waiting.state))?;
        let closed = waiting.closed;
        let own = RetryPolicy::JOB_BUDGET.contains(&closed.outcome);
        let is_loss = retry::budget(closed.outcome) == RetryBudget::Infrastructure;
        let losses = if is_loss { self.losses(write.job, closed)? } else { None };
        let next = [
            ValueRef::Integer(codes::of_state(waiting.state)),
            ValueRef::Integer(waiting.due_at.0),
            ValueRef::Integer(own.into()),
            losses.as_deref().into(),
        ];
        let usage = usage_column::code(&closed.usage);
        let values =
            closing(write, closed, usage.as_deref()).into_iter().chain(next).map(ToSqlOutput::Borrowed);
        let changed = self.statements.wait.on(self.connection)?.execute(params_from_iter(values))?;
        self.expect_one_row(changed, write)
    }

    /// A row changes its state in this way, or the group is refused.
    fn member_moves(&mut self, job: i64, from: i64, to: i64) -> WriteResult {
        if let Some(batch) = self.cache.members.batch_of(self.connection, job)? {
            self.cache.members.add(batch, from, to);
        }
        Ok(())
    }

    /// A row gets this state, whichever it has.
    fn member_moves_to(&mut self, job: i64, to: i64) -> WriteResult {
        let Some(batch) = self.cache.members.batch_of(self.connection, job)? else { return Ok(()) };
        let mut statement = self.connection.prepare_cached("SELECT state FROM jobs WHERE id = ?1")?;
        if let Some(from) = statement.query_row([job], |row| row.get(0)).optional()? {
            self.cache.members.add(batch, from, to);
        }
        Ok(())
    }

    /// The job's losses with this one.
    fn losses(&mut self, job: JobId, closed: &ClosedAttempt) -> Result<Option<String>, Failure> {
        let mut statement = self.connection.prepare_cached("SELECT losses FROM jobs WHERE id = ?1")?;
        let stored = statement.query_row([job.0.cast_signed()], |row| rows::losses(row, 0)).optional()?;
        let mut losses = stored.unwrap_or_default();
        retry::record_loss(&mut losses, closed.ended_at);
        let instants: Vec<i64> = losses.into_iter().map(|at| at.0).collect();
        Ok(json_column::code(&instants))
    }

    /// Refuses the write unless its statement changed exactly one row.
    pub(super) fn expect_one_row(&self, changed: usize, write: &JobWrite<'_>) -> WriteResult {
        if changed == 1 { Ok(()) } else { Err(self.refusal(write.job, write.expected)?) }
    }

    /// Names what was expected and what is there.
    pub(super) fn refusal(&self, job: JobId, expected: Expected) -> Result<Failure, Failure> {
        let found: Option<(i64, Option<i64>)> = self
            .connection
            .prepare_cached("SELECT state, fence FROM all_jobs WHERE id = ?1")?
            .query_row([job.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let there = match found {
            None if expected == Expected::Absent => "its number was given before".to_owned(),
            None => "it does not exist".to_owned(),
            Some((state, fence)) => {
                let state = codes::state(state).map_or("in an unknown state", State::name);
                fence.map_or_else(
                    || format!("it is {state}"),
                    |fence| format!("it is {state}, last attempt {fence}"),
                )
            }
        };
        Ok(Failure::Refused(format!("job {job}: expected {expected}, but {there}")))
    }
}

/// How the row of a held job is found.
struct Held {
    job: i64,
    fence: i64,
    nonce: i64,
    /// Assigned if it must not have started, else running.
    highest_state: i64,
}

impl Held {
    fn of(write: &JobWrite<'_>) -> Option<Self> {
        match write.expected {
            Expected::Unstarted(token) | Expected::Held(token) => Some(Self::new(token, write)),
            Expected::Absent
            | Expected::Scheduled
            | Expected::Queued
            | Expected::Waiting
            | Expected::Quarantined
            | Expected::Idle => None,
        }
    }

    fn new(token: Token, write: &JobWrite<'_>) -> Self {
        let unstarted = matches!(write.expected, Expected::Unstarted(_));
        Self {
            job: token.job.0.cast_signed(),
            fence: token.fence.0.cast_signed(),
            nonce: token.nonce.0.cast_signed(),
            highest_state: codes::of_state(if unstarted { State::Assigned } else { State::Running }),
        }
    }
}

/// How an attempt came to its end, whatever becomes of its job: the first values of `wait.sql` and `end_with_attempt.sql`.
pub(super) fn closing<'w>(
    write: &JobWrite<'w>,
    end: &'w ClosedAttempt,
    usage: Option<&'w str>,
) -> [ValueRef<'w>; 16] {
    let held = Held::new(end.token, write);
    let (started_at, container) = started(write);
    let number = |number: Option<i64>| number.map_or(ValueRef::Null, ValueRef::Integer);
    [
        ValueRef::Integer(held.job),
        ValueRef::Integer(held.fence),
        ValueRef::Integer(held.nonce),
        ValueRef::Integer(held.highest_state),
        number(end.started_at.map(|at| at.0).or(started_at)),
        container.into(),
        number(write.stopping.map(codes::of_stop)),
        ValueRef::Integer(codes::of_outcome(end.outcome)),
        number(end.exit_code.map(i64::from)),
        null_if_empty(&end.message).into(),
        ValueRef::Integer(end.ended_at.0),
        ValueRef::Integer(end.output.stdout.cast_signed()),
        ValueRef::Integer(end.output.stderr.cast_signed()),
        end.result.as_deref().into(),
        number(end.released.map(codes::of_release)),
        usage.into(),
    ]
}

fn live_state(write: &JobWrite<'_>) -> i64 {
    codes::of_state(if write.started.is_some() { State::Running } else { State::Assigned })
}

fn started<'g>(write: &JobWrite<'g>) -> (Option<i64>, Option<&'g str>) {
    write.started.map_or((None, None), |(at, container)| (Some(at.0), null_if_empty(container)))
}

/// The text as it is stored: null if it is empty.
pub(super) fn null_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
