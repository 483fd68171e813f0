//! Follows the members of batches, cancels what has not started once too many of them failed, and cancels whole batches.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use protocol::{JobId, Now, Timestamp};

use crate::batches::{BY_BATCH, BatchOptions, LiveBatch, MAX_FAILURES_REACHED, NewBatch};
use crate::core::Scheduler;
use crate::handlers::{attempt_end, cancel, dependency, pause, run_on};
use crate::input::CancelBatchRequest;
use crate::job::LiveState;
use crate::limits::gate;
use crate::queue::{LaneKey, QueueKey};
use crate::state::State;
use crate::step::{Answer, Change, Rejection};

/// Adds a batch whose members have the numbers from `first` on.
pub(crate) fn begin(
    scheduler: &mut Scheduler,
    created_at: Timestamp,
    first: JobId,
    count: u32,
    options: BatchOptions,
) {
    let batch = NewBatch { first, count, options, created_at };
    scheduler.batches.add(LiveBatch::new(&batch));
    scheduler.change(Change::BatchAdded(batch));
}

/// Counts the end of a job in its batch.
pub(crate) fn member_ended(scheduler: &mut Scheduler, now: Now, job: JobId, state: State) {
    if let Some(batch) = scheduler.batches.count_end(job, state) {
        let LiveBatch { first, count, failed, .. } = batch;
        let state = batch.end_state();
        scheduler.change(Change::BatchEnded { first, count, failed, state, at: now.utc });
        pause::batch_ended(scheduler, first);
        dependency::batch_ended(scheduler, first, state);
    }
}

/// Cancels a batch. None of its members starts from this step on, and the first of them are cancelled in it; [`cancel_stopped`] cancels the
/// rest.
pub(crate) fn cancel_batch(scheduler: &mut Scheduler, now: Now, request: CancelBatchRequest) {
    let CancelBatchRequest { ticket, batch: first, by } = request;
    let is_visible = is_visible(scheduler, first);
    let Some(live) = scheduler.batches.get(first).filter(|_| is_visible).map(|batch| batch.live) else {
        scheduler.reply(ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    stop_batch(scheduler, now, first, by);
    let left = scheduler.batches.get(first).map_or(0, |batch| batch.live);
    scheduler.reply(ticket, Answer::BatchCancelRequested { live, ended: live.saturating_sub(left) });
}

/// Marks a batch as cancelled and cancels the first of its members, unless it was marked before.
pub(crate) fn stop_batch(scheduler: &mut Scheduler, now: Now, first: JobId, by: Arc<str>) {
    if scheduler.batches.cancel(first, &by) {
        scheduler.change(Change::BatchCancelled { first, by, at: now.utc });
        let members = scheduler.batches.next_to_cancel_of(first, MEMBERS_PER_STEP);
        cancel_members(scheduler, now, members);
    }
}

/// There is such a batch with members that have not ended, and all of them are made.
pub(crate) fn is_visible(scheduler: &Scheduler, first: JobId) -> bool {
    scheduler.batches.has(first) && !scheduler.pending_batches.hides(first)
}

/// The members of a batch that have not ended, and the members of jobs on several workers among them. Walks all members.
pub(crate) fn members(scheduler: &Scheduler, first: JobId) -> Vec<JobId> {
    let numbers = scheduler.batches.get(first).map_or(0..0, |batch| first.0..batch.end().0);
    let live = numbers.map(JobId).filter(|id| scheduler.jobs.contains_key(id));
    let with_own = |id: JobId| {
        let parent = scheduler.parents.get(id);
        core::iter::once(id).chain(parent.into_iter().flat_map(|parent| parent.live.iter().copied()))
    };
    live.flat_map(with_own).collect()
}

/// Moves the waiting members of a batch to the lanes that they belong to, after its pause has begun or ended, or its limit has come or gone.
/// Walks all of them: for an operator's command, and at the end of a pause.
pub(crate) fn requeue_members(scheduler: &mut Scheduler, first: JobId) {
    let mut moves = Moves::default();
    for id in members(scheduler, first) {
        reassign_lane(scheduler, id, &mut moves);
    }
    // Lanes get their turns in the order of the first members.
    for ((from, to), jobs) in moves.jobs {
        scheduler.ready.move_jobs(from, to, jobs);
        // A lane that was woken in place of others leaves them what it does not take.
        gate::recheck_after_leaving(scheduler, from);
    }
}

/// The lane that a job leaves, and the one that it goes to.
type FromTo = (LaneKey, LaneKey);

/// Jobs that go from one lane to another, with their former and their new positions.
#[derive(Default)]
struct Moves {
    jobs: Vec<(FromTo, Vec<(QueueKey, QueueKey)>)>,
    /// Positions in `jobs` by these lanes.
    places: BTreeMap<FromTo, usize>,
}

impl Moves {
    fn add(&mut self, lanes: FromTo, job: (QueueKey, QueueKey)) {
        let place = *self.places.entry(lanes).or_insert(self.jobs.len());
        match self.jobs.get_mut(place) {
            Some((_, jobs)) => jobs.push(job),
            None => self.jobs.push((lanes, alloc::vec![job])),
        }
    }
}

fn reassign_lane(scheduler: &mut Scheduler, id: JobId, moves: &mut Moves) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    let LiveState::Queued(before) = job.live_state else { return };
    let old = job.queue_key(scheduler.config.priority_ageing, id);
    if let Some((lane, new)) = attempt_end::assign_lane(scheduler, id)
        && lane != before
    {
        moves.add((before, lane), (old, new));
    }
}

/// In batches that reached `max_failures`, cancels up to [`MEMBERS_PER_STEP`] members that have not started; in cancelled ones also those that
/// run. The rest follows in the next step, so that no commit grows with the size of a batch.
pub(crate) fn cancel_stopped(scheduler: &mut Scheduler, now: Now) {
    if scheduler.batches.has_to_cancel() {
        let members = scheduler.batches.next_to_cancel(MEMBERS_PER_STEP);
        cancel_members(scheduler, now, members);
    }
}

fn cancel_members(scheduler: &mut Scheduler, now: Now, members: Range<u64>) {
    for job in members {
        cancel_if_stopped(scheduler, now, JobId(job));
    }
}

/// Cancels a job of a stopped batch: of a cancelled one in any case, of one that reached `max_failures` unless its container runs. Returns
/// whether the job is one of a stopped batch.
pub(crate) fn cancel_if_stopped(scheduler: &mut Scheduler, now: Now, job: JobId) -> bool {
    if cancel_with_batch(scheduler, now, job) {
        return true;
    }
    let is_stopped = scheduler.batches.is_stopped(job);
    if is_stopped {
        cancel_unstarted(scheduler, now, job);
    }
    is_stopped
}

/// Cancels a job if somebody cancelled its batch, which may not have come to it yet. Returns whether that is so.
pub(crate) fn cancel_with_batch(scheduler: &mut Scheduler, now: Now, job: JobId) -> bool {
    let Some(by) = requester(scheduler, job) else { return false };
    if let Some(parent) = scheduler.parent_of(job) {
        cancel::cancel_for(scheduler, now, parent, (*by).into());
        cancel::cancel_for(scheduler, now, job, run_on::by_parent(parent));
    } else {
        cancel::cancel_for(scheduler, now, job, (*by).into());
    }
    true
}

/// The job belongs to a batch that somebody cancelled.
pub(crate) fn is_cancelled(scheduler: &Scheduler, job: JobId) -> bool {
    requester(scheduler, job).is_some()
}

/// The requester of the cancel of a job's batch. A member of a job on several workers belongs to the batch of its parent.
fn requester(scheduler: &Scheduler, job: JobId) -> Option<Arc<str>> {
    let numbered = scheduler.jobs.get(&job)?.role().numbered_as(job);
    scheduler.batches.of(numbered)?.cancelled_by.clone()
}

fn cancel_unstarted(scheduler: &mut Scheduler, now: Now, id: JobId) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    match &job.live_state {
        LiveState::Held(attempt) if attempt.has_started() => {}
        LiveState::Parent { has_started: true } => {}
        LiveState::Held(_) | LiveState::Parent { has_started: false } => {
            cancel::cancel_for(scheduler, now, id, BY_BATCH.into())
        }
        LiveState::Scheduled | LiveState::Queued(_) | LiveState::Quarantined => {
            attempt_end::end_unheld(scheduler, now, id, State::Cancelled, MAX_FAILURES_REACHED.into());
        }
    }
}

/// Members of stopped batches that one step looks at.
const MEMBERS_PER_STEP: u64 = 500;
