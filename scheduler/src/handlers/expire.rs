//! Ends jobs that wait for too long: for a start (`queue_timeout`), or in quarantine (`quarantine_timeout`).
//!
//! Rules:
//! - A wait begins when the job is due. It goes on while the job is given back unstarted, and ends with the start of its container.
//! - Each further attempt, a changed start and a release from quarantine begin a new wait.
//! - Deadlines are instants of the wall clock, so they pass while the server is away.
//! - An attempt that its worker may have started is not ended: the server asks for it back, and the worker gives it back if it is still in
//!   its backlog. A worker that is away is asked when it has sent its inventory.

use alloc::string::String;
use core::time::Duration;

use protocol::{JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::definition::WaitLimits;
use crate::handlers::attempt_end;
use crate::job::{Job, LiveState};
use crate::placement::recall;
use crate::run_on::RunOnRole;
use crate::state::State;
use crate::step::Change;
use crate::timers::WallTimer;

/// Reason of a job that did not start in time.
pub(crate) const NOT_STARTED: &str = "it did not start within its queue_timeout";

/// Reason of a job that nobody released in time.
const NOT_RELEASED: &str = "nobody released it from quarantine within its quarantine_timeout";

/// Begins the wait for a start.
pub(crate) fn start_queue_timeout(scheduler: &mut Scheduler, id: JobId, from: Timestamp) {
    start_timeout(scheduler, id, from, |waits| waits.queue);
}

/// Begins the wait for an operator.
pub(crate) fn start_quarantine_timeout(scheduler: &mut Scheduler, id: JobId, from: Timestamp) {
    start_timeout(scheduler, id, from, |waits| waits.quarantine);
}

/// The job waits no longer.
pub(crate) fn clear(scheduler: &mut Scheduler, id: JobId) {
    set_deadline(scheduler, id, None);
}

/// Sets the timer of a job whose deadline is known.
pub(crate) fn arm(scheduler: &mut Scheduler, id: JobId) {
    if let Some(at) = scheduler.jobs.get(&id).and_then(Job::expires_at) {
        scheduler.timers.set_wall(at, WallTimer::Expiry(id));
    }
}

fn start_timeout(
    scheduler: &mut Scheduler,
    id: JobId,
    from: Timestamp,
    of: fn(&WaitLimits) -> Option<Duration>,
) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    if job.role() == RunOnRole::Parent {
        return;
    }
    let limit = scheduler.definitions.at(job.definition).and_then(|definition| of(&definition.waits));
    set_deadline(scheduler, id, limit.map(|limit| from + limit));
}

fn set_deadline(scheduler: &mut Scheduler, id: JobId, at: Option<Timestamp>) {
    let Some(job) = scheduler.jobs.get_mut(&id) else { return };
    let before = job.expires_at();
    if before == at {
        return;
    }
    job.extras_mut().expires_at = at;
    if let Some(before) = before {
        scheduler.timers.clear_wall(before, WallTimer::Expiry(id));
    }
    arm(scheduler, id);
    scheduler.change(Change::Expiry { job: id, at });
}

/// The deadline has come.
pub(crate) fn expire(scheduler: &mut Scheduler, now: Now, id: JobId) {
    let Some(job) = scheduler.live_job(id).filter(|job| job.has_expired(now.utc)) else { return };
    let reason = match &job.live_state {
        LiveState::Held(_) => return recall::recall_unstarted(scheduler, now, [id]),
        // Its members expire.
        LiveState::Parent { .. } => return,
        LiveState::Scheduled | LiveState::Queued(_) => NOT_STARTED,
        LiveState::Quarantined => NOT_RELEASED,
    };
    attempt_end::end_unheld(scheduler, now, id, State::Expired, String::from(reason));
}
