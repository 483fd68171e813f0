//! Scheduled jobs that become due.

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::handlers::{admission, attempt_end};
use crate::job::{Job, LiveState};
use crate::step::Change;
use crate::timers::WallTimer;

/// Queues a scheduled job, unless it waits for another one. If this is the first time, it makes room as a job that is queued at once does.
pub(crate) fn start_due_job(scheduler: &mut Scheduler, now: Now, id: JobId) {
    let is_scheduled = |job: &Job| matches!(job.live_state, LiveState::Scheduled);
    if scheduler.jobs.get(&id).is_some_and(is_scheduled) && !attempt_end::waits_for_another(scheduler, id) {
        attempt_end::queue(scheduler, id);
        scheduler.change(Change::BecameDue { job: id });
        admission::make_room(scheduler, now, id);
    }
}

/// Sets the timer of a scheduled job that waits for an earlier one no longer. If its time has come, it becomes due with the next tick.
pub(crate) fn set_timer(scheduler: &mut Scheduler, job: JobId) {
    if let Some(live) = scheduler.jobs.get(&job)
        && matches!(live.live_state, LiveState::Scheduled)
    {
        scheduler.timers.set_wall(live.due_at, WallTimer::Due(job));
    }
}
