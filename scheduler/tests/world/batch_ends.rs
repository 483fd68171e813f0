//! The counts of batches, taken anew from the rows of their members.

use proptest::prelude::*;

use super::Ledger;
use crate::world::protocol::JobId;
use crate::world::scheduler::batches::{BatchLimits, NewBatch};
use crate::world::scheduler::job::State;
use crate::world::scheduler::pauses::PauseChange;
use crate::world::scheduler::step::Change;

impl Ledger {
    /// The job is one of a batch in which too many failed, or that was cancelled.
    pub(super) fn is_stopped(&self, job: JobId) -> bool {
        let batch = self.batches.range(..=job).next_back().map(|(_, batch)| batch);
        batch.filter(|batch| job < end(batch)).is_some_and(|batch| {
            self.cancelled_batches.contains(&batch.first) || self.has_too_many_failures(batch)
        })
    }

    /// The job is one of a batch that is paused.
    pub(super) fn is_of_paused_batch(&self, job: JobId) -> bool {
        let batch = self.batches.range(..=job).next_back().map(|(_, batch)| batch);
        batch.is_some_and(|batch| job < end(batch) && self.paused_batches.contains(&batch.first))
    }

    /// The pause of a batch begins or is over: with the batch, or before.
    pub(super) fn pause(&mut self, first: JobId, pause: &PauseChange) -> Result<(), TestCaseError> {
        let is_live = self.batches.contains_key(&first);
        let was_paused = match pause.in_force() {
            Some(_) => self.paused_batches.insert(first) || is_live,
            None => self.paused_batches.remove(&first),
        };
        let has_ended = matches!(pause, PauseChange::BatchEnded);
        prop_assert!(was_paused && is_live != has_ended, "batch {first}: {pause:?}");
        Ok(())
    }

    /// All members of a batch have ended: their number, and the number of those that failed.
    pub(super) fn batch_ended(&mut self, change: &Change) -> Result<(), TestCaseError> {
        let Change::BatchEnded { first, count, failed, state, .. } = *change else { return Ok(()) };
        let batch = self.batches.remove(&first).unwrap();
        prop_assert_eq!(batch.count, count);
        prop_assert_eq!(self.failures(&batch), failed);
        prop_assert_eq!(self.end_of(&batch), state);
        prop_assert!(self.ended_batches.insert(first, state).is_none(), "it ended twice");
        let mut members = self.rows.range(first..end(&batch));
        prop_assert!(members.all(|(_, row)| row.state.has_ended()), "a member has not ended");
        Ok(())
    }

    /// A batch takes the unique key of another one.
    pub(super) fn batch_replaced(&self, first: JobId, by: JobId) -> Result<(), TestCaseError> {
        let key = |first| self.batches.get(&first).and_then(|batch| batch.options.unique_key());
        prop_assert!(key(first).is_some() && key(first) == key(by), "{first} is replaced by {by}");
        Ok(())
    }

    /// The limits of a batch are others.
    pub(super) fn batch_changed(&mut self, first: JobId, limits: BatchLimits) -> Result<(), TestCaseError> {
        let options = &mut self.batches.get_mut(&first).expect("it has not ended").options;
        let former = (options.max_failures, options.concurrency);
        (options.max_failures, options.concurrency) = (limits.max_failures, limits.concurrency);
        prop_assert!(former != (options.max_failures, options.concurrency), "nothing has changed");
        Ok(())
    }

    fn has_too_many_failures(&self, batch: &NewBatch) -> bool {
        batch.options.max_failures.is_some_and(|max| self.failures(batch) >= max)
    }

    pub(super) fn failures(&self, batch: &NewBatch) -> u32 {
        let members = self.rows.range(batch.first..end(batch));
        u32::try_from(members.filter(|(_, row)| row.state.is_failure()).count()).unwrap()
    }

    /// The state in which a batch ends that has no live members.
    pub(super) fn end_of(&self, batch: &NewBatch) -> State {
        let members = self.rows.range(batch.first..end(batch));
        let mut cancelled = members.filter(|(_, row)| row.state == State::Cancelled);
        match (self.failures(batch), cancelled.any(|(job, _)| !self.skipped.contains(job))) {
            (0, false) => State::Succeeded,
            (0, true) => State::Cancelled,
            _ => State::Failed,
        }
    }
}

/// The number after the last member.
pub(super) fn end(batch: &NewBatch) -> JobId {
    JobId(batch.first.0 + u64::from(batch.count))
}
