//! Forgets workers: on an operator's command, or because they were away for long.

use core::time::Duration;

use protocol::{Now, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::handlers::{attempt_end, drain};
use crate::reconcile::unconfirmed;
use crate::step::Change;
use crate::timers::{Alarm, Date};

/// Removes a worker that is not connected and holds nothing.
pub(crate) fn forget_worker(scheduler: &mut Scheduler, id: WorkerId) {
    drain::end(scheduler, id);
    if let Some(at) = scheduler.fleet.worker(id).and_then(|worker| worker.lease.alarm) {
        scheduler.timers.clear_alarm(at, Alarm::LeaseEnd(id));
    }
    if let Some(at) = scheduler.fleet.worker(id).and_then(|worker| worker.claims.until) {
        scheduler.timers.clear_alarm(at, Alarm::ClonesGone(id));
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

/// Time after which a revoked worker is forgotten that holds nothing: as long as revoked tokens are kept. Its secret would be unknown, and no
/// longer refused for good, after it.
const REVOKED_FORGOTTEN_AFTER: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Uptime for which the wall clock has to say that a worker was away for too long. A clock that an operator has set wrongly, or of a machine
/// without a battery, is corrected sooner. The retention of the server trusts a clock after as long.
const CLOCK_TRUSTED_AFTER: Duration = Duration::from_secs(6 * 60 * 60);

fn forgotten_after(worker: &Worker) -> Duration {
    if worker.row.revoked_at.is_some() { REVOKED_FORGOTTEN_AFTER } else { FORGOTTEN_AFTER }
}

/// Sets the timer that forgets a worker. It is moved when it fires, not at each disconnect.
pub(crate) fn watch_expiry(scheduler: &mut Scheduler, id: WorkerId) {
    if let Some(worker) = scheduler.fleet.worker(id) {
        let at = worker.row.seen_at + forgotten_after(worker);
        scheduler.timers.set_date(at, Date::WorkerExpiry(id));
    }
}

/// Lets a worker that was not seen for a week be forgotten some hours later. A wall clock that was set ahead by mistake would let all workers
/// expire at once, and they would be refused on their return; in these hours of uptime it may be corrected.
pub(crate) fn expire_worker(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    match expiry_of(scheduler, now, id) {
        Some(Expiry::Reached) => {
            scheduler.timers.set_alarm(now.up + CLOCK_TRUSTED_AFTER, Alarm::WorkerExpiry(id));
        }
        Some(Expiry::Held) => {
            scheduler.timers.set_date(now.utc + FORGOTTEN_AFTER, Date::WorkerExpiry(id));
        }
        Some(Expiry::Ahead) => watch_expiry(scheduler, id),
        None => {}
    }
}

/// Forgets the worker if it has still not been seen after these hours.
pub(crate) fn confirm_expiry(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    match expiry_of(scheduler, now, id) {
        Some(Expiry::Reached) => forget_worker(scheduler, id),
        // The worker is back, or the clock was corrected.
        _ => expire_worker(scheduler, now, id),
    }
}

/// A worker beside the time after which it is forgotten.
enum Expiry {
    /// The time is over, and nothing keeps the worker.
    Reached,
    /// The time is over, but the worker is connected or holds something.
    Held,
    /// The time is not over.
    Ahead,
}

fn expiry_of(scheduler: &Scheduler, now: Now, id: WorkerId) -> Option<Expiry> {
    let worker = scheduler.fleet.worker(id)?;
    let is_idle = worker.link.is_away() && worker.holdings.jobs.is_empty() && worker.claims.until.is_none();
    Some(match (now.utc.since(worker.row.seen_at) >= forgotten_after(worker), is_idle) {
        (true, true) => Expiry::Reached,
        (true, false) => Expiry::Held,
        (false, _) => Expiry::Ahead,
    })
}
