//! The counts of batches, taken anew from the rows of their members.

use super::Ledger;
use crate::world::protocol::JobId;
use crate::world::scheduler::batches::{NewBatch, is_failure};
use crate::world::scheduler::job::State;

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

    fn has_too_many_failures(&self, batch: &NewBatch) -> bool {
        batch.options.max_failures.is_some_and(|max| self.failures(batch) >= max)
    }

    pub(super) fn failures(&self, batch: &NewBatch) -> u32 {
        let members = self.rows.range(batch.first..end(batch));
        u32::try_from(members.filter(|(_, row)| is_failure(row.state)).count()).unwrap()
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
