//! Writes the end of a job: its row moves from the live jobs to the ended ones.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OptionalExtension, params, params_from_iter};
use scheduler::step::{ClosedAttempt, Ended};

use super::jobs::{closing, null_if_empty};
use super::{EndedJob, Failure, TransactionWriter, WriteResult};
use crate::store::fold::JobWrite;
use crate::store::sqlite::{codes, usage_column};

/// The columns of a live job that its end needs.
struct LiveFacts {
    batch: Option<i64>,
    state: i64,
    /// Id of its revision's row.
    definition: i64,
}

impl TransactionWriter<'_> {
    pub(super) fn end(&mut self, write: &JobWrite<'_>, ended: &Ended) -> WriteResult {
        let job = write.job.0.cast_signed();
        let moved = match &ended.closed {
            Some(closed) => self.end_with_attempt(write, ended, closed)?,
            None => self.statements.end_without_attempt.on(self.connection)?.execute(params![
                job,
                codes::of_state(ended.state),
                ended.at.0,
                null_if_empty(&ended.reason),
                ended.confirmed,
            ])?,
        };
        if moved == 0 && self.is_settled(ended)? {
            return Ok(());
        }
        self.expect_one_row(moved, write)?;
        let live = self.statements.live_facts.on(self.connection)?.query_row([job], |row| {
            Ok(LiveFacts { batch: row.get(0)?, state: row.get(1)?, definition: row.get(2)? })
        });
        let Some(live) = live.optional()? else {
            return Err(self.refusal(write.job, write.expected)?);
        };
        self.statements.remove.on(self.connection)?.execute([job])?;
        let state = codes::of_state(ended.state);
        if let Some(batch) = live.batch {
            self.cache.members.add(batch, live.state, state);
        }
        self.record_end_time(job, ended.at);
        self.ended_jobs.push(EndedJob { job, definition: live.definition, state, ended_at: ended.at.0 });
        Ok(())
    }

    fn end_with_attempt(
        &mut self,
        write: &JobWrite<'_>,
        ended: &Ended,
        closed: &ClosedAttempt,
    ) -> Result<usize, Failure> {
        let end = [
            ValueRef::Integer(codes::of_state(ended.state)),
            ValueRef::Integer(ended.at.0),
            null_if_empty(&ended.reason).into(),
            ValueRef::Integer(ended.confirmed.into()),
        ];
        let usage = usage_column::code(&closed.usage);
        let values =
            closing(write, closed, usage.as_deref()).into_iter().chain(end).map(ToSqlOutput::Borrowed);
        Ok(self.statements.end_with_attempt.on(self.connection)?.execute(params_from_iter(values))?)
    }

    /// True if the job has already ended by this attempt with this outcome: then there is nothing to do.
    fn is_settled(&self, ended: &Ended) -> Result<bool, Failure> {
        let Some(closed) = &ended.closed else { return Ok(false) };
        let mut statement = self.connection.prepare_cached(
            "SELECT 1 FROM ended WHERE id = ?1 AND fence = ?2 AND nonce = ?3 AND state = ?4 AND outcome = ?5",
        )?;
        Ok(statement.exists(params![
            ended.job.0.cast_signed(),
            closed.token.fence.0.cast_signed(),
            closed.token.nonce.0.cast_signed(),
            codes::of_state(ended.state),
            codes::of_outcome(closed.outcome),
        ])?)
    }
}
