//! Follows the members of batches, and cancels what has not started once too many of them failed.

use protocol::{JobId, Now, Timestamp};

use crate::batches::{BY_BATCH, BatchOptions, LiveBatch, MAX_FAILURES_REACHED, NewBatch};
use crate::core::Scheduler;
use crate::handlers::{attempt_end, cancel, dependency};
use crate::job::LiveState;
use crate::state::State;
use crate::step::Change;

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
        dependency::batch_ended(scheduler, first, state);
    }
}

/// In batches that reached `max_failures`, cancels up to [`MEMBERS_PER_STEP`] members that have not started. The rest follows in the next
/// step, so that no commit grows with the size of a batch.
pub(crate) fn cancel_stopped(scheduler: &mut Scheduler, now: Now) {
    if !scheduler.batches.has_to_cancel() {
        return;
    }
    for job in scheduler.batches.next_to_cancel(MEMBERS_PER_STEP) {
        cancel_unstarted(scheduler, now, JobId(job));
    }
}

/// Cancels a job of a stopped batch unless its container runs. Returns whether the job is one of a stopped batch.
pub(crate) fn cancel_if_stopped(scheduler: &mut Scheduler, now: Now, job: JobId) -> bool {
    let is_stopped = scheduler.batches.is_stopped(job);
    if is_stopped {
        cancel_unstarted(scheduler, now, job);
    }
    is_stopped
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
