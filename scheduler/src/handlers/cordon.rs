//! Cordons: a worker gets no new attempts until somebody uncordons it, or until the time that was given with the cordon. The end of that time
//! does as an uncordon: it ends a drain as well. A cordon with an end that comes after the command to drain is how an operator asks for that.

use protocol::{Now, WorkerId};

use crate::core::Scheduler;
use crate::handlers::{drain, worker_commands};
use crate::origin::Intervention;
use crate::step::Change;
use crate::timers::WallTimer;

/// Cordons a worker, or ends its cordon, and moves the timer of the end. The caller makes the change of the row.
pub(crate) fn set(scheduler: &mut Scheduler, id: WorkerId, cordon: Option<Intervention>) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let before = worker.row.cordon_end();
    worker.row.set_cordon(cordon);
    let after = worker.row.cordon_end();
    if let Some(at) = before {
        scheduler.timers.clear_wall(at, WallTimer::CordonEnd(id));
    }
    if let Some(at) = after {
        scheduler.timers.set_wall(at, WallTimer::CordonEnd(id));
    }
}

/// Ends a cordon whose time has come.
pub(crate) fn end_at_time(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    let Some(until) = worker.row.cordon_end().filter(|at| *at <= now.utc) else { return };
    let before = worker.settings();
    set(scheduler, id, None);
    drain::end(scheduler, id);
    let Some(row) = scheduler.fleet.worker(id).map(|worker| worker.row.clone()) else { return };
    scheduler.change(Change::CordonEnded { row, until });
    worker_commands::apply_settings(scheduler, id, &before);
    scheduler.changed = true;
}
