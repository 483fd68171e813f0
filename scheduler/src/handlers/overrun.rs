//! Attempts that run past their timeout, so long that their workers must have failed to stop them.

use core::time::Duration;

use protocol::order::StopCause;
use protocol::{Fence, JobId, Now, Token};

use crate::core::Scheduler;
use crate::handlers::cancel;
use crate::job::{Attempt, Job};
use crate::timers::UptimeTimer;

/// Sets the overrun alarm, counted from the start of the container by the worker's clock.
pub(crate) fn arm(scheduler: &mut Scheduler, now: Now, token: Token, ago: Duration) {
    let Some(limit) = scheduler.jobs.get(&token.job).and_then(|job| scheduler.run_limit(job)) else {
        return;
    };
    let at = now.up + limit.saturating_sub(ago);
    let run = scheduler.jobs.get_mut(&token.job).and_then(Job::attempt_mut).and_then(Attempt::run_mut);
    if let Some(run) = run {
        run.overrun_at = Some(at);
        scheduler.timers.set_uptime(at, UptimeTimer::Overrun(token.job, token.fence));
    }
}

/// Stops an attempt that its worker should have stopped at its timeout.
pub(crate) fn stop(scheduler: &mut Scheduler, now: Now, id: JobId, fence: Fence) {
    if let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut)
        && attempt.fence == fence
        && let Some(run) = attempt.run_mut()
    {
        run.overrun_at = None;
    }
    cancel::stop(scheduler, now, id, fence, StopCause::Timeout, "its timeout".into());
}
