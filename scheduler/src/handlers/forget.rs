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
const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Time after which a revoked worker is forgotten that holds nothing: as long as revoked tokens are kept. Its secret would be unknown, and no
/// longer refused for good, after it.
const REVOKED_FORGOTTEN_AFTER: Duration = Duration::from_secs(400 * 24 * 60 * 60);

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

/// Forgets a worker that was not seen for a week and holds nothing; looks again in a week otherwise.
pub(crate) fn expire_worker(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    let is_idle = worker.link.is_away()
        && worker.lease.is_expired
        && worker.holdings.jobs.is_empty()
        && worker.claims.until.is_none();
    let is_over = now.utc.since(worker.row.seen_at) >= forgotten_after(worker);
    if is_idle && is_over {
        forget_worker(scheduler, id);
    } else if is_over {
        scheduler.timers.set_date(now.utc + FORGOTTEN_AFTER, Date::WorkerExpiry(id));
    } else {
        watch_expiry(scheduler, id);
    }
}
