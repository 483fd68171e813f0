//! Writes batches whose members are made over many groups. Nobody sees them, and they resolve no failure, before the last member is made.

use protocol::JobId;
use rusqlite::OptionalExtension;

use super::{Failure, TransactionWriter, WriteResult};
use crate::store::sqlite::{failures, pending_batch};

impl TransactionWriter<'_> {
    /// Reserves numbers for the members of a large batch.
    pub(super) fn begin_pending_batch(&mut self, JobId(first): JobId, JobId(last): JobId) -> WriteResult {
        let (first, last) = (first.cast_signed(), last.cast_signed());
        if first <= self.last_job {
            return Err(Failure::Refused(format!(
                "a batch from {first} on: expected new numbers, but they were given before"
            )));
        }
        self.highest.job = self.highest.job.max(last);
        self.connection
            .prepare_cached("INSERT INTO forming (first, last) VALUES (?1, ?2)")?
            .execute((first, last))?;
        Ok(())
    }

    /// Makes the members of this batch jobs like all others.
    pub(super) fn complete_pending_batch(&mut self, JobId(first): JobId) -> WriteResult {
        let last: Option<i64> = self
            .connection
            .prepare_cached(
                "DELETE FROM forming WHERE first = ?1 AND last IN (SELECT id FROM jobs) RETURNING last",
            )?
            .query_row([first.cast_signed()], |row| row.get(0))
            .optional()?;
        let Some(last) = last else {
            return Err(Failure::Refused(format!(
                "a batch from {first} on: expected it to be pending, with its last member made"
            )));
        };
        let retried = failures::retried_within(self.connection, (first.cast_signed(), last))?;
        self.retried_by_batches.extend(retried);
        Ok(())
    }

    /// The jobs whose retries became visible with this group. Those of a batch that is still pending may yet be gone after a crash.
    pub(super) fn retried(&mut self) -> rusqlite::Result<Vec<i64>> {
        let mut retried = std::mem::take(&mut self.retried_by_batches);
        if !self.retries.is_empty() {
            let pending = pending_batch::ranges(self.connection)?;
            let visible = self.retries.iter().filter(|(retry, _)| !pending_batch::contain(&pending, *retry));
            retried.extend(visible.map(|(_, retried)| *retried));
        }
        Ok(retried)
    }

    /// True if a new job may have this number: it was never given, or it is reserved for a pending batch.
    pub(super) fn is_free(&mut self, job: i64) -> rusqlite::Result<bool> {
        if job > self.last_job {
            return Ok(true);
        }
        let ranges = match self.pending_batches.take() {
            Some(known) => known,
            None => pending_batch::ranges(self.connection)?,
        };
        let ranges = self.pending_batches.insert(ranges);
        Ok(pending_batch::contain(ranges, job))
    }
}
