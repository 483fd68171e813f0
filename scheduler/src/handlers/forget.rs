//! Forgets workers: on an operator's command, or because they were away for long.

use core::time::Duration;

use protocol::{Now, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::handlers::{attempt_end, cordon, drain};
use crate::reconcile::unconfirmed;
use crate::step::Change;
use crate::timers::{UptimeTimer, WallTimer};

/// Removes a worker that is not connected and holds nothing.
pub(crate) fn forget_worker(scheduler: &mut Scheduler, id: WorkerId) {
    cordon::set(scheduler, id, None);
    drain::end(scheduler, id);
    if let Some(at) = scheduler.fleet.worker(id).and_then(|worker| worker.lease.alarm) {
        scheduler.timers.clear_uptime(at, UptimeTimer::LeaseEnd(id));
    }
    if let Some(at) = scheduler.fleet.worker(id).and_then(|worker| worker.claims.clones_until) {
        scheduler.timers.clear_uptime(at, UptimeTimer::ClonesGone(id));
    }
    unconfirmed::drop_worker(scheduler, id);
    scheduler.fleet.remove(id);
    // Jobs pinned to this worker may run anywhere now.
    for job in scheduler.ready.take_pinned(id) {
        attempt_end::queue(scheduler, job);
    }
    scheduler.change(Change::WorkerForgotten(id));
}

/// Time after which a worker is forgotten that did not reconnect and holds nothing. Without a limit each discarded state directory would
/// leave a row for ever.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Time after which a revoked worker is forgotten that holds nothing: as long as revoked tokens are kept. After that its secret is
/// unknown, and a worker with it could join again.
const REVOKED_FORGOTTEN_AFTER: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Uptime for which the wall clock has to say that a worker was away for too long. A wrong clock is usually corrected within this time.
/// Retention of the server uses the same delay.
const CLOCK_TRUSTED_AFTER: Duration = Duration::from_secs(6 * 60 * 60);

fn forgotten_after(worker: &Worker) -> Duration {
    if worker.row.revoked_at.is_some() { REVOKED_FORGOTTEN_AFTER } else { FORGOTTEN_AFTER }
}

/// Sets the timer that forgets a worker. It is moved when it fires, not at each disconnect.
pub(crate) fn arm_worker_expiry(scheduler: &mut Scheduler, id: WorkerId) {
    if let Some(worker) = scheduler.fleet.worker(id) {
        let at = worker.row.seen_at + forgotten_after(worker);
        scheduler.timers.set_wall(at, WallTimer::WorkerExpiry(id));
    }
}

/// Lets a worker that was not seen for a week be forgotten some hours later. A wall clock that was set ahead by mistake would let all workers
/// expire at once, and they would be refused on their return; in these hours of uptime it may be corrected.
pub(crate) fn expire_worker(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    match forget_check(scheduler, now, id) {
        Some(ForgetCheck::Due) => {
            scheduler.timers.set_uptime(now.up + CLOCK_TRUSTED_AFTER, UptimeTimer::WorkerExpiry(id));
        }
        Some(ForgetCheck::InUse) => {
            scheduler.timers.set_wall(now.utc + FORGOTTEN_AFTER, WallTimer::WorkerExpiry(id));
        }
        Some(ForgetCheck::NotYet) => arm_worker_expiry(scheduler, id),
        None => {}
    }
}

/// Forgets the worker if it has still not been seen after these hours.
pub(crate) fn confirm_expiry(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    match forget_check(scheduler, now, id) {
        Some(ForgetCheck::Due) => forget_worker(scheduler, id),
        // The worker is back, or the clock was corrected.
        _ => expire_worker(scheduler, now, id),
    }
}

/// The answer to the question whether a worker is forgotten now.
enum ForgetCheck {
    /// The time is over, and nothing keeps the worker.
    Due,
    /// The time is over, but the worker is connected or holds something.
    InUse,
    /// The time is not over.
    NotYet,
}

fn forget_check(scheduler: &Scheduler, now: Now, id: WorkerId) -> Option<ForgetCheck> {
    let worker = scheduler.fleet.worker(id)?;
    let is_idle =
        worker.link.is_away() && worker.holdings.jobs.is_empty() && worker.claims.clones_until.is_none();
    Some(match (now.utc.since(worker.row.seen_at) >= forgotten_after(worker), is_idle) {
        (true, true) => ForgetCheck::Due,
        (true, false) => ForgetCheck::InUse,
        (false, _) => ForgetCheck::NotYet,
    })
}
