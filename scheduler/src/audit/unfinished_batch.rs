//! Inconsistencies of a batch that is being created: nothing of it may be visible before it is complete.

use protocol::JobId;

use crate::core::Scheduler;
use crate::job::{Job, LiveState};
use crate::pending_batch::BatchInProgress;
use crate::timers::WallTimer;

/// A member of an unfinished batch waits with its batch only.
pub(super) fn hidden_fault(
    scheduler: &Scheduler,
    batch: &BatchInProgress,
    id: JobId,
    job: &Job,
) -> Option<&'static str> {
    let (with_batch, elsewhere) = match &job.live_state {
        LiveState::Queued(lane) => {
            let key = job.queue_key(scheduler.config.priority_ageing, id);
            (
                batch.lanes.get(lane).is_some_and(|run| run.contains(&key)),
                scheduler.ready.contains(*lane, key),
            )
        }
        LiveState::Scheduled => {
            let is_listed = batch.dates.contains(&(job.due_at, id)) || batch.waiting.contains(&id);
            (is_listed, scheduler.timers.has_wall(job.due_at, WallTimer::Due(id)))
        }
        LiveState::Parent { .. } => (batch.parents.contains(&id), false),
        LiveState::Held(_) | LiveState::Quarantined => (false, true),
    };
    match (with_batch, elsewhere) {
        (_, true) => Some("it is visible before its batch is complete"),
        (false, false) => Some("its batch does not list it"),
        (true, false) => None,
    }
}

pub(super) fn members_fault(scheduler: &Scheduler, batch: &BatchInProgress) -> Option<&'static str> {
    let made = batch.made();
    if batch.last() > scheduler.counters.job {
        return Some("the numbers of a batch may be assigned again");
    }
    let is_there = |id: u64| scheduler.jobs.contains_key(&JobId(id));
    let complete =
        scheduler.pending_batches.hidden() as u64 == made.end - made.start && made.clone().all(is_there);
    (!complete).then_some("created members of a batch are missing")
}
