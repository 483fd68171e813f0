//! Forgets a worker: on an operator's command, or because it was away for long.

use protocol::WorkerId;

use crate::core::Scheduler;
use crate::handlers::{close, drain};
use crate::reconcile::unconfirmed;
use crate::step::Change;
use crate::timers::Alarm;

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
        close::queue(scheduler, job);
    }
    scheduler.change(Change::WorkerForgotten(id));
}
