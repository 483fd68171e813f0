//! Writes the end of a job: its row moves from the live jobs to the ended ones.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OptionalExtension, params, params_from_iter};
use scheduler::step::{ClosedAttempt, Ended};

use super::jobs::{closing, some};
use super::{Done, EndedJob, Failure, TransactionWriter};
use crate::store::fold::JobWrite;
use crate::store::sqlite::{codes, limits, rows, usage_column};

impl TransactionWriter<'_> {
    pub(super) fn end(&mut self, write: &JobWrite<'_>, ended: &Ended) -> Done {
        let job = write.job.0.cast_signed();
        let moved = match &ended.closed {
            Some(closed) => self.end_held(write, ended, closed)?,
            None => self.statements.end_idle.on(self.connection)?.execute(params![
                job,
                codes::of_state(ended.state),
                ended.at.0,
                some(&ended.reason),
                ended.confirmed,
            ])?,
        };
        if moved == 0 && self.is_settled(ended)? {
            return Ok(());
        }
        self.one(moved, write)?;
        let live = self.statements.live_facts.on(self.connection)?.query_row([job], |row| {
            let numbers = (row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?);
            Ok((row.get::<_, Option<i64>>(0)?, numbers))
        });
        let Some((batch, (before, definition, details))) = live.optional()? else {
            return Err(self.refusal(write.job, write.expected)?);
        };
        self.statements.remove.on(self.connection)?.execute([job])?;
        if details & rows::HAS_KEYS != 0 {
            limits::delete_keys(self.connection, job)?;
        }
        let state = codes::of_state(ended.state);
        if let Some(batch) = batch {
            self.cache.members.add(batch, before, state);
        }
        self.ended(job, ended.at);
        self.ended_jobs.push(EndedJob { job, definition, state, ended_at: ended.at.0 });
        Ok(())
    }

    fn end_held(
        &mut self,
        write: &JobWrite<'_>,
        ended: &Ended,
        closed: &ClosedAttempt,
    ) -> Result<usize, Failure> {
        let end = [
            ValueRef::Integer(codes::of_state(ended.state)),
            ValueRef::Integer(ended.at.0),
            some(&ended.reason).into(),
            ValueRef::Integer(ended.confirmed.into()),
        ];
        let usage = usage_column::code(&closed.usage);
        let values =
            closing(write, closed, usage.as_deref()).into_iter().chain(end).map(ToSqlOutput::Borrowed);
        Ok(self.statements.end_held.on(self.connection)?.execute(params_from_iter(values))?)
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
