//! Large batches in progress. Their members are created in slices, one per group, so that other requests are
//! not delayed. Until the last slice the members are not placed, not due, not found and not counted.
//!
//! ```text
//! accepted ──▶ waits for the batches before it ──▶ slice, slice, … ──▶ last slice: all members are visible, and the request is answered
//! ```
//!
//! Batches are created one after another: the first is finished sooner and the last no later, and a crash
//! leaves the rows of one batch at most.

mod demand;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use protocol::{JobId, Timestamp};

use crate::batches::BatchOptions;
use crate::dependencies::PredecessorId;
use crate::details::JobDetails;
use crate::ids::{DefinitionNo, GroupNo, Ticket};
use crate::limits::LimitId;
use crate::new_jobs;
use crate::new_jobs::NewJob;
use crate::queue::{LaneKey, QueueKey};
use crate::state::State;

pub use demand::Demand;

/// Members that may wait to be created: ten of the largest requests, some 100 MB beside their overrides.
const MEMBERS_MAX: usize = 1_000_000;

/// Repetitions of one request that may wait for its answer; a client does not retry more often.
const JOINED_MAX: usize = 1_024;

/// Bytes of overrides that count as much as a member's row.
const BYTES_PER_WEIGHT: usize = 1_024;

/// All large batches that are not complete.
#[derive(Debug, Default)]
pub struct PendingBatches {
    in_progress: Option<BatchInProgress>,
    waiting: VecDeque<PendingBatch>,
    /// The last group that got a slice.
    sliced_in: Option<GroupNo>,
    /// Jobs and batches that members come after, with the states in which they ended since. A member that is created later learns them from here.
    predecessors: BTreeMap<PredecessorId, Option<State>>,
    /// Sum over all batches, so that a submission does not walk them.
    demand: Demand,
}

/// An accepted large batch.
#[derive(Debug)]
pub struct PendingBatch {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The request's idempotency key and digest.
    pub key: Option<(Arc<str>, u128)>,
    /// Requests with the same key, each with its digest; they get the same answer.
    pub joined: Vec<(Ticket, u128)>,
    /// Members that are still to be created.
    pub rest: new_jobs::Rest,
    /// Its name, its limits and its unique key, until its first slice.
    pub options: BatchOptions,
    /// The unique key that it takes once it is complete. No other request gets that meanwhile.
    pub unique_key: Option<Arc<str>>,
    /// Number of members.
    pub count: u32,
    /// Definitions of the members, retained so that a new jobs.yaml does not remove them.
    pub definitions: BTreeSet<DefinitionNo>,
    /// The share of its members in limits at a submission.
    pub demand: Demand,
}

/// The batch whose members are being created.
#[derive(Debug)]
pub struct BatchInProgress {
    /// The accepted batch.
    pub pending: PendingBatch,
    /// Its first member; the others follow.
    pub first: JobId,
    /// Time of the first slice, which is the creation time of all members.
    pub created_at: Timestamp,
    /// Members that will be queued, by lane.
    pub lanes: BTreeMap<LaneKey, BTreeSet<QueueKey>>,
    /// Members that will be scheduled.
    pub dates: Vec<(Timestamp, JobId)>,
    /// Members that wait for the ends of other jobs.
    pub waiting: Vec<JobId>,
    /// Members that are parents of jobs on several workers.
    pub parents: Vec<JobId>,
    /// Members that may wait for a limited time only.
    pub expiring: Vec<JobId>,
}

impl PendingBatches {
    /// There is room for a batch of this size.
    #[must_use]
    pub fn has_room(&self, members: usize) -> bool {
        self.to_be_made() + members <= MEMBERS_MAX
    }

    /// Members of all batches that are still to be created.
    #[must_use]
    pub fn to_be_made(&self) -> usize {
        self.batches().map(|batch| batch.rest.len()).sum()
    }

    /// Adds a batch after the others. `predecessors` are jobs and batches that have not ended.
    pub fn push(&mut self, batch: PendingBatch, predecessors: impl IntoIterator<Item = PredecessorId>) {
        self.predecessors.extend(predecessors.into_iter().map(|on| (on, None)));
        self.demand.add(&batch.demand);
        self.waiting.push_back(batch);
    }

    /// The members of all batches, by the limits that count them at a submission.
    #[must_use]
    pub const fn demand(&self) -> &Demand {
        &self.demand
    }

    /// A member of this batch has been made: its limit of permits counts it from now on.
    pub fn member_made(&mut self, batch: &mut PendingBatch, limit: &LimitId) {
        if batch.demand.permits.contains_key(limit) {
            batch.demand.made(limit, 1);
            self.demand.made(limit, 1);
        }
    }

    /// A batch is complete: the queue and the limits count its members from now on.
    pub fn completed(&mut self, batch: &PendingBatch) {
        self.demand.subtract(&batch.demand);
    }

    /// A job or a batch has ended.
    pub fn record_end(&mut self, on: PredecessorId, state: State) {
        if let Some(known) = self.predecessors.get_mut(&on) {
            *known = Some(state);
        }
    }

    /// The state in which a job or a batch ended that members come after.
    #[must_use]
    pub fn end_of(&self, predecessor: PredecessorId) -> Option<State> {
        self.predecessors.get(&predecessor).copied().flatten()
    }

    /// Forgets what members came after, once there are no members left to be created.
    pub fn forget_predecessors(&mut self) {
        if self.batches().next().is_none() {
            self.predecessors.clear();
        }
    }

    /// The batch with this key, if it is not complete.
    pub fn keyed(&mut self, key: &str) -> Option<&mut PendingBatch> {
        let in_progress = self.in_progress.iter_mut().map(|it| &mut it.pending);
        let mut batches = in_progress.chain(&mut self.waiting);
        batches.find(|batch| batch.key.as_ref().is_some_and(|(own, _)| **own == *key))
    }

    /// A slice can be created in this group.
    #[must_use]
    pub fn wants_slice(&self, group: GroupNo) -> bool {
        self.batches().next().is_some() && self.sliced_in != Some(group)
    }

    /// Takes the batch that gets this group's slice. `begin` starts a batch that has waited so far.
    pub fn take(
        &mut self,
        group: GroupNo,
        begin: impl FnOnce(PendingBatch) -> BatchInProgress,
    ) -> Option<BatchInProgress> {
        if !self.wants_slice(group) {
            return None;
        }
        self.sliced_in = Some(group);
        self.in_progress.take().or_else(|| self.waiting.pop_front().map(begin))
    }

    /// Puts a batch back that needs another slice.
    pub fn put_back(&mut self, in_progress: BatchInProgress) {
        self.in_progress = Some(in_progress);
    }

    /// A batch that is not complete will have this unique key.
    #[must_use]
    pub fn claims(&self, key: &str) -> bool {
        self.batches().any(|batch| batch.unique_key.as_deref() == Some(key))
    }

    /// The job is a member of a batch that is not complete.
    #[must_use]
    pub fn hides(&self, job: JobId) -> bool {
        self.in_progress.as_ref().is_some_and(|it| it.made().contains(&job.0))
    }

    /// Number of hidden jobs.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.in_progress.as_ref().map_or(0, BatchInProgress::hidden)
    }

    /// The batch in progress, for the audit.
    #[must_use]
    pub const fn in_progress(&self) -> Option<&BatchInProgress> {
        self.in_progress.as_ref()
    }

    /// Removes the hidden jobs of a lane and returns them.
    pub fn take_lane(&mut self, lane: LaneKey) -> BTreeSet<QueueKey> {
        self.in_progress.as_mut().and_then(|it| it.lanes.remove(&lane)).unwrap_or_default()
    }

    /// Adds a hidden job to the lane that it will wait in.
    pub fn add_to_lane(&mut self, lane: LaneKey, key: QueueKey) {
        if let Some(batch) = &mut self.in_progress {
            batch.lanes.entry(lane).or_default().insert(key);
        }
    }

    /// All batches, in the order of their creation.
    pub fn batches(&self) -> impl Iterator<Item = &PendingBatch> {
        self.in_progress.iter().map(|it| &it.pending).chain(&self.waiting)
    }
}

impl PendingBatch {
    /// Adds a request with the same idempotency key that waits for the same answer. Returns false if too many wait.
    pub fn join(&mut self, ticket: Ticket, digest: u128) -> bool {
        let has_room = self.joined.len() < JOINED_MAX;
        if has_room {
            self.joined.push((ticket, digest));
        }
        has_room
    }
}

impl BatchInProgress {
    /// Number of the last member.
    #[must_use]
    pub fn last(&self) -> JobId {
        JobId(self.first.0 + u64::from(self.pending.count) - 1)
    }

    /// Number of the next member.
    #[must_use]
    pub fn next(&self) -> JobId {
        JobId(self.made().end)
    }

    /// Number of the members that exist, by what they wait for.
    fn hidden(&self) -> usize {
        self.lanes.values().map(BTreeSet::len).sum::<usize>()
            + self.dates.len()
            + self.waiting.len()
            + self.parents.len()
    }

    /// Numbers of the members that exist.
    #[must_use]
    pub fn made(&self) -> Range<u64> {
        let made = u64::from(self.pending.count).saturating_sub(self.pending.rest.len() as u64);
        self.first.0..self.first.0 + made
    }
}

/// The jobs need more than one slice.
#[must_use]
pub fn is_large<'j>(jobs: impl Iterator<Item = &'j NewJob>, slice: usize) -> bool {
    let mut weight = 0;
    let mut jobs = jobs.enumerate();
    jobs.any(|(index, job)| {
        weight += self::weight(job);
        weight > slice && index > 0
    })
}

/// Cost of storing a job, compared with one without overrides.
#[must_use]
pub fn weight(job: &NewJob) -> usize {
    1 + job.after.len() + job.details.as_ref().map_or(0, |details| stored_bytes(details) / BYTES_PER_WEIGHT)
}

/// Bytes of the data of a job: its overrides, its labels, and everything that follows from its parameters.
#[must_use]
pub fn stored_bytes(details: &JobDetails) -> usize {
    let pairs = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    };
    let overrides = &details.overrides;
    pairs(&details.labels)
        + pairs(&overrides.environment)
        + overrides.args.iter().map(String::len).sum::<usize>()
        + overrides.input.as_ref().map_or(0, String::len)
        + pairs(&details.params.environment)
        + pairs(&details.params.variables)
        + details.params.args.iter().map(String::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use protocol::container::Overrides;

    use super::*;
    use crate::new_jobs::NewJobs;

    fn with_args(bytes: usize) -> NewJob {
        let details = JobDetails {
            overrides: Overrides { args: vec!["x".repeat(bytes)], ..Overrides::default() },
            ..JobDetails::default()
        };
        NewJob { details: Some(details.into()), ..NewJob::default() }
    }

    #[test]
    fn a_batch_is_large_by_its_members_or_by_their_overrides() {
        assert!(!is_large(vec![NewJob::default(); 100].iter(), 100));
        assert!(is_large(vec![NewJob::default(); 101].iter(), 100));
        assert!(!is_large(vec![with_args(1_000); 100].iter(), 100));
        assert!(is_large(vec![with_args(11_000); 10].iter(), 100));
        assert!(!is_large([with_args(1_000_000)].iter(), 100), "one job cannot be divided");
    }

    #[test]
    fn the_weight_of_a_member_counts_all_of_its_overrides() {
        let some = "x".repeat(BYTES_PER_WEIGHT);
        let pairs = vec![(some.clone(), some.clone())];
        let overrides =
            Overrides { environment: pairs.clone(), args: vec![some.clone(); 2], input: Some(some) };
        let details = JobDetails { labels: pairs, overrides, ..JobDetails::default() };
        assert_eq!(weight(&NewJob { details: Some(details.into()), ..NewJob::default() }), 1 + 2 + 2 + 2 + 1);
        assert_eq!(weight(&NewJob::default()), 1);
    }

    #[test]
    fn the_number_of_waiting_members_is_limited() {
        let mut pending_batches = PendingBatches::default();
        assert!(pending_batches.has_room(MEMBERS_MAX) && !pending_batches.has_room(MEMBERS_MAX + 1));
        let rest = NewJobs::from(vec![NewJob::default(); 10]).into_iter();
        let (key, joined, definitions) = (None, Vec::new(), BTreeSet::new());
        let options = BatchOptions::default();
        let demand = Demand { queued: 10, ..Demand::default() };
        let (ticket, unique_key, count) = (Ticket(1), Some("main".into()), 10);
        let batch =
            PendingBatch { ticket, key, joined, rest, options, unique_key, count, definitions, demand };
        let on = |job| PredecessorId::Job(JobId(job));
        pending_batches.push(batch, [on(7)]);
        assert!(pending_batches.claims("main") && !pending_batches.claims("other"));
        pending_batches.record_end(on(7), State::Failed);
        pending_batches.record_end(on(8), State::Failed);
        assert_eq!([7, 8].map(|job| pending_batches.end_of(on(job))), [Some(State::Failed), None]);
        assert!(pending_batches.has_room(MEMBERS_MAX - 10) && !pending_batches.has_room(MEMBERS_MAX - 9));
    }
}
