//! Batches with members that have not ended. The members of a batch have consecutive numbers, so a job is found in its batch without
//! a reference of its own.

mod limits;
mod member;
mod unique;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

use protocol::{JobId, Timestamp};

use crate::limits::keys::BatchPermits;
use crate::state::State;
pub use limits::{BatchLimits, BatchUpdate, NewLimit};
pub use member::BatchMember;
pub use unique::{BatchUnique, MayReplace};

/// Options of a request for several jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchOptions {
    /// A name for people and filters; not unique.
    pub name: Option<String>,
    /// After this many failed members, those that have not started are cancelled.
    pub max_failures: Option<u32>,
    /// Members that may be on workers at once.
    pub concurrency: Option<u32>,
    /// The batch whose members it repeats.
    pub retry_of: Option<JobId>,
    /// Its unique key, with the answer to a request whose key is taken.
    pub unique: Option<BatchUnique>,
}

/// A batch as it is stored when it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBatch {
    /// The first member, whose number is that of the batch.
    pub first: JobId,
    /// The number of members.
    pub count: u32,
    /// Its name and its limits.
    pub options: BatchOptions,
    /// Wall-clock time of the acceptance.
    pub created_at: Timestamp,
}

/// A batch with members that have not ended, as the store returns it at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBatch {
    /// The first member.
    pub first: JobId,
    /// The number of members.
    pub count: u32,
    /// Members that have not ended.
    pub live: u32,
    /// Members that failed, see [`State::is_failure`].
    pub failed: u32,
    /// Members that were cancelled, with those that were skipped.
    pub cancelled: u32,
    /// Members that were skipped: nothing went wrong with them.
    pub skipped: u32,
    /// After this many failed members, those that have not started are cancelled.
    pub max_failures: Option<u32>,
    /// Members that may be on workers at once.
    pub concurrency: Option<u32>,
    /// The first requester of a cancel of the whole batch.
    pub cancelled_by: Option<Arc<str>>,
    /// Its unique key; none once another batch has replaced it.
    pub unique_key: Option<Arc<str>>,
}

/// The reason of members that are cancelled because too many others failed.
pub const MAX_FAILURES_REACHED: &str = "batch max_failures reached";

/// The requester of the cancel of members that a worker has. The reason of a job on several workers says so.
pub const BY_BATCH: &str = "its batch, in which max_failures was reached";

/// The reason of a cancelled job whose requester is unknown. Earlier versions gave it to each job that a worker had: its requester is in a note.
pub const STOPPED: &str = "cancelled";

/// All batches with members that have not ended.
#[derive(Debug, Default)]
pub struct Batches {
    live: BTreeMap<JobId, LiveBatch>,
    /// Batches that reached their limit of failures or were cancelled, and the first member that was not looked at since.
    to_cancel: BTreeMap<JobId, JobId>,
    /// The batches that have unique keys.
    holders: BTreeMap<Arc<str>, JobId>,
}

impl BatchOptions {
    /// The value of its unique key.
    #[must_use]
    pub fn unique_key(&self) -> Option<Arc<str>> {
        self.unique.as_ref().map(|unique| Arc::clone(&unique.key))
    }
}

impl LiveBatch {
    /// A batch that was just accepted.
    #[must_use]
    pub fn new(batch: &NewBatch) -> Self {
        let NewBatch { first, count, .. } = *batch;
        let BatchOptions { max_failures, concurrency, .. } = batch.options;
        Self {
            first,
            count,
            live: count,
            failed: 0,
            cancelled: 0,
            skipped: 0,
            max_failures,
            concurrency,
            cancelled_by: None,
            unique_key: batch.options.unique_key(),
        }
    }

    /// Its limits.
    #[must_use]
    pub const fn limits(&self) -> BatchLimits {
        BatchLimits { max_failures: self.max_failures, concurrency: self.concurrency }
    }

    /// Too many members failed, or somebody cancelled the batch: no further member starts.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.cancelled_by.is_some() || self.max_failures.is_some_and(|max| self.failed >= max)
    }

    /// The state in which the batch ends if no further member ends otherwise than successful: failed if a member failed, else cancelled if one
    /// was cancelled without being skipped. The store has the same rule.
    #[must_use]
    pub const fn end_state(&self) -> State {
        if self.failed > 0 {
            State::Failed
        } else if self.cancelled > self.skipped {
            State::Cancelled
        } else {
            State::Succeeded
        }
    }

    /// The number after the last member.
    #[must_use]
    pub fn end(&self) -> JobId {
        JobId(self.first.0 + u64::from(self.count))
    }
}

impl Batches {
    /// Adds a batch. One that has reached its limit of failures, or was cancelled, is cancelled from its first member on.
    pub fn add(&mut self, batch: LiveBatch) {
        if batch.is_stopped() {
            self.to_cancel.insert(batch.first, batch.first);
        }
        self.live.insert(batch.first, batch);
    }

    /// The batch of a job, if it has one with members that have not ended.
    #[must_use]
    pub fn of(&self, job: JobId) -> Option<&LiveBatch> {
        self.live.range(..=job).next_back().map(|(_, batch)| batch).filter(|batch| job < batch.end())
    }

    /// The position of a job in its batch.
    #[must_use]
    pub fn member(&self, job: JobId) -> Option<BatchMember> {
        let LiveBatch { first, count, .. } = *self.of(job)?;
        Some(BatchMember { batch: first, index: u32::try_from(job.0 - first.0).ok()?, size: count })
    }

    /// The limit on members of the job's batch at once.
    #[must_use]
    pub fn permits(&self, job: JobId) -> Option<BatchPermits> {
        let LiveBatch { first, concurrency, .. } = *self.of(job)?;
        Some(BatchPermits { batch: first, limit: concurrency? })
    }

    /// The job belongs to a batch that reached its limit of failures, or was cancelled.
    #[must_use]
    pub fn is_stopped(&self, job: JobId) -> bool {
        self.of(job).is_some_and(LiveBatch::is_stopped)
    }

    /// The batch with this first member, if it has members that have not ended.
    #[must_use]
    pub fn get(&self, first: JobId) -> Option<&LiveBatch> {
        self.live.get(&first)
    }

    /// Cancels a batch: none of its members starts from now on. Returns false if that is known, or if all members have ended.
    pub fn cancel(&mut self, first: JobId, by: &Arc<str>) -> bool {
        let Some(batch) = self.live.get_mut(&first).filter(|batch| batch.cancelled_by.is_none()) else {
            return false;
        };
        batch.cancelled_by = Some(Arc::clone(by));
        // After its limit of failures only those that had not started were cancelled.
        self.to_cancel.insert(first, first);
        true
    }

    /// Sets the limits of a batch. It stops if it has as many failures as may be; members that are still to be cancelled are not if it has
    /// fewer.
    pub fn set_limits(&mut self, first: JobId, limits: BatchLimits) {
        let Some(batch) = self.live.get_mut(&first) else { return };
        let was_stopped = batch.is_stopped();
        (batch.max_failures, batch.concurrency) = (limits.max_failures, limits.concurrency);
        match (was_stopped, batch.is_stopped()) {
            (false, true) => drop(self.to_cancel.insert(first, first)),
            (true, false) => drop(self.to_cancel.remove(&first)),
            _ => {}
        }
    }

    /// The batch with this first member has members that have not ended.
    #[must_use]
    pub fn has(&self, first: JobId) -> bool {
        self.live.contains_key(&first)
    }

    /// A job is cancelled because it is skipped. Call it before [`Self::count_end`].
    pub fn skip(&mut self, job: JobId) {
        let first = self.of(job).map(|batch| batch.first);
        if let Some(batch) = first.and_then(|first| self.live.get_mut(&first)) {
            batch.skipped += 1;
        }
    }

    /// Counts the end of a job. Returns its batch if that was the last member.
    pub fn count_end(&mut self, job: JobId, state: State) -> Option<LiveBatch> {
        let first = self.of(job)?.first;
        let batch = self.live.get_mut(&first)?;
        let was_stopped = batch.is_stopped();
        batch.live = batch.live.saturating_sub(1);
        batch.failed += u32::from(state.is_failure());
        batch.cancelled += u32::from(state == State::Cancelled);
        if batch.is_stopped() && !was_stopped {
            self.to_cancel.insert(first, first);
        }
        if batch.live > 0 {
            return None;
        }
        self.to_cancel.remove(&first);
        let ended = self.live.remove(&first);
        self.free_key(ended.as_ref());
        ended
    }

    /// Members of a stopped batch are still to be cancelled.
    #[must_use]
    pub fn has_to_cancel(&self) -> bool {
        !self.to_cancel.is_empty()
    }

    /// The next members of a stopped batch to look at, at most `count`.
    pub fn next_to_cancel(&mut self, count: u64) -> core::ops::Range<u64> {
        let first = self.to_cancel.keys().next().copied();
        first.map_or(0..0, |first| self.next_to_cancel_of(first, count))
    }

    /// The next members of this batch to look at, at most `count`; none if it was not stopped, or all were looked at.
    pub fn next_to_cancel_of(&mut self, first: JobId, count: u64) -> core::ops::Range<u64> {
        let Some(from) = self.to_cancel.remove(&first) else { return 0..0 };
        let end = self.live.get(&first).map_or(from, LiveBatch::end);
        let to = end.0.min(from.0 + count);
        if to < end.0 {
            self.to_cancel.insert(first, JobId(to));
        }
        from.0..to
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &LiveBatch> {
        self.live.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u64, count: u32, max_failures: Option<u32>) -> LiveBatch {
        let options = BatchOptions { max_failures, ..BatchOptions::default() };
        LiveBatch::new(&NewBatch { first: JobId(first), count, options, created_at: Timestamp(0) })
    }

    #[test]
    fn a_job_is_found_in_its_batch_by_its_number() {
        let mut batches = Batches::default();
        batches.add(batch(3, 2, None));
        batches.add(batch(7, 3, None));
        let member = |job| batches.member(JobId(job)).map(|it| (it.batch.0, it.index, it.size));
        assert_eq!([2, 3, 4, 5].map(member), [None, Some((3, 0, 2)), Some((3, 1, 2)), None]);
        assert_eq!([6, 7, 9, 10].map(member), [None, Some((7, 0, 3)), Some((7, 2, 3)), None]);
    }

    #[test]
    fn the_last_end_of_a_batch_removes_it() {
        let mut batches = Batches::default();
        batches.add(batch(1, 2, None));
        assert_eq!(batches.count_end(JobId(1), State::Failed), None);
        let ended = batches.count_end(JobId(2), State::Succeeded).unwrap();
        assert_eq!((ended.live, ended.failed), (0, 1));
        assert_eq!(batches.of(JobId(1)), None);
    }

    #[test]
    fn a_batch_fails_with_a_member_and_succeeds_if_the_others_were_skipped() {
        let end = |ends: &[State], skipped: bool| {
            let mut batches = Batches::default();
            batches.add(batch(1, 2, None));
            assert!(batches.has(JobId(1)) && !batches.has(JobId(2)));
            if skipped {
                batches.skip(JobId(2));
            }
            let ended = (1..).zip(ends).find_map(|(job, state)| batches.count_end(JobId(job), *state));
            ended.expect("all members have ended").end_state()
        };
        assert_eq!(end(&[State::Succeeded, State::Succeeded], false), State::Succeeded);
        assert_eq!(end(&[State::Succeeded, State::Cancelled], true), State::Succeeded);
        assert_eq!(end(&[State::Succeeded, State::Cancelled], false), State::Cancelled);
        assert_eq!(end(&[State::Lost, State::Cancelled], false), State::Failed);
    }

    #[test]
    fn a_batch_with_too_many_failures_is_cancelled_in_slices() {
        let mut batches = Batches::default();
        batches.add(batch(1, 10, Some(2)));
        assert_eq!(batches.count_end(JobId(4), State::Cancelled), None);
        assert_eq!(batches.count_end(JobId(1), State::Expired), None);
        assert!(!batches.has_to_cancel());
        assert_eq!(batches.count_end(JobId(2), State::Lost), None);
        assert!(batches.is_stopped(JobId(9)));
        assert_eq!(batches.next_to_cancel(8), 1..9);
        assert_eq!(batches.next_to_cancel(8), 9..11);
        assert!(!batches.has_to_cancel());
    }

    #[test]
    fn a_cancelled_batch_is_stopped_at_once_and_looked_at_from_its_first_member_on() {
        let mut batches = Batches::default();
        batches.add(batch(1, 10, Some(1)));
        batches.add(batch(11, 3, None));
        assert_eq!(batches.count_end(JobId(1), State::Failed), None);
        assert_eq!(batches.next_to_cancel(8), 1..9);
        assert!(batches.cancel(JobId(11), &"ann".into()));
        assert!(batches.cancel(JobId(1), &"ann".into()));
        assert!(!batches.cancel(JobId(1), &"bob".into()), "the first requester stays");
        assert!(!batches.cancel(JobId(2), &"ann".into()), "a member is not its batch");
        assert_eq!(batches.get(JobId(1)).unwrap().cancelled_by.as_deref(), Some("ann"));
        assert!(batches.is_stopped(JobId(13)));
        assert_eq!(batches.next_to_cancel_of(JobId(11), 2), 11..13);
        assert_eq!(batches.next_to_cancel(20), 1..11);
        assert_eq!(batches.next_to_cancel(20), 13..14);
        assert!(!batches.has_to_cancel());
    }

    #[test]
    fn a_changed_limit_of_failures_stops_a_batch_or_lets_it_go_on() {
        let mut batches = Batches::default();
        batches.add(batch(1, 10, None));
        batches.count_end(JobId(1), State::Failed);
        let set = |batches: &mut Batches, max_failures| {
            batches.set_limits(JobId(1), BatchLimits { max_failures, concurrency: Some(3) });
            (batches.is_stopped(JobId(9)), batches.has_to_cancel())
        };
        assert_eq!(set(&mut batches, Some(2)), (false, false));
        assert_eq!(set(&mut batches, Some(1)), (true, true));
        assert_eq!(set(&mut batches, NewLimit::Set(5).instead_of(Some(1))), (false, false));
        assert_eq!(set(&mut batches, NewLimit::Lift.instead_of(Some(5))), (false, false));
        assert!(batches.cancel(JobId(1), &"ann".into()));
        assert_eq!(set(&mut batches, NewLimit::Keep.instead_of(None)), (true, true), "it is cancelled");
        assert_eq!(batches.get(JobId(1)).map(|batch| batch.limits().concurrency), Some(Some(3)));
    }

    #[test]
    fn a_cancelled_batch_is_cancelled_further_after_a_start() {
        let mut batches = Batches::default();
        batches.add(LiveBatch { cancelled_by: Some("ann".into()), ..batch(1, 10, None) });
        assert!(batches.has_to_cancel() && batches.is_stopped(JobId(10)));
    }
}
