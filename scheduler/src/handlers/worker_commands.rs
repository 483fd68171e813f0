//! Operator commands about one worker. They are stored and survive restarts and reconnects.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::Configure;
use protocol::{JobId, Now, Order, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::fleet::health::Health;
use crate::handlers::{cordon, drain, forget, revoke};
use crate::ids::Ticket;
use crate::input::Operation;
use crate::origin::Intervention;
use crate::placement::recall;
use crate::reconcile::unknown_attempts;
use crate::step::{Answer, Change, Rejection};

pub(crate) fn operate(
    scheduler: &mut Scheduler,
    now: Now,
    ticket: Ticket,
    id: WorkerId,
    operation: Operation,
) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        scheduler.reply(ticket, Answer::Rejected(Rejection::UnknownWorker));
        return;
    };
    let before = worker.settings();
    let is_cordon = matches!(operation, Operation::Cordon { .. });
    match operation {
        Operation::Cordon { until, origin } => {
            cordon::set(scheduler, id, Some(Intervention { until, ..Intervention::at(now, origin) }));
        }
        Operation::Uncordon => {
            cordon::set(scheduler, id, None);
            drain::end(scheduler, id);
        }
        // A drain lasts until somebody ends it, so that nobody finds a worker at work whose machine is being repaired.
        Operation::Drain(timeout, origin) => {
            cordon::set(scheduler, id, Some(Intervention::at(now, origin)));
            drain::begin(scheduler, now, id, timeout);
        }
        Operation::Slots(slots) => worker.row.slots = Some(slots),
        Operation::Labels(changes) => {
            let labels = merge_labels(&worker.row.labels, changes);
            if labels.len() > LABELS_MAX {
                scheduler.reply(ticket, Answer::Rejected(Rejection::TooManyLabels));
                return;
            }
            worker.row.labels = labels;
        }
        Operation::Reset => {
            worker.health = Health::default();
        }
        // Running clones count as connected.
        Operation::Forget
            if worker.link.session().is_some()
                || worker.claims.clones_until.is_some()
                || !worker.holdings.jobs.is_empty() =>
        {
            scheduler.reply(ticket, Answer::Rejected(Rejection::WorkerConnected));
            return;
        }
        Operation::Forget => {
            forget::forget_worker(scheduler, id);
            scheduler.reply(ticket, Answer::Done);
            return;
        }
        Operation::Revoke => {
            revoke::revoke(scheduler, now, id);
            scheduler.reply(ticket, Answer::Done);
            return;
        }
        Operation::StopUnmanaged(which) => {
            let answer = unknown_attempts::stop(scheduler, id, which);
            scheduler.reply(ticket, answer);
            return;
        }
    }
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    let row = worker.row.clone();
    scheduler.change(Change::Worker(row));
    apply_settings(scheduler, id, &before);
    if is_cordon {
        recall_backlog(scheduler, now, id);
    }
    scheduler.reply(ticket, Answer::Done);
}

/// Tells a worker its settings if they differ from these former ones, and places jobs by its row from now on.
pub(crate) fn apply_settings(scheduler: &mut Scheduler, id: WorkerId, before: &Configure) {
    let Some(settings) = scheduler.fleet.worker(id).map(Worker::settings) else { return };
    if let Some(session) = scheduler.ready_session(id).filter(|_| settings != *before) {
        scheduler.send(session, Order::Configure(settings));
    }
    scheduler.fleet.reclassify_known(id);
    scheduler.fleet.refresh(id);
    scheduler.fleet.mark_capacity_grown(id);
}

/// A cordoned worker starts nothing new: it gives back the attempts in its backlog that it has not begun to prepare.
fn recall_backlog(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker(id).filter(|worker| worker.row.recalls_backlog()) else {
        return;
    };
    let prefetched: Vec<JobId> = worker.holdings.prefetched.iter().map(|key| key.job()).collect();
    recall::recall_unstarted(scheduler, now, prefetched);
}

/// Applies changes to a list of labels.
fn merge_labels(
    labels: &[(String, String)],
    changes: Vec<(String, Option<String>)>,
) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<String, String> = labels.iter().cloned().collect();
    for (name, value) in changes {
        match value {
            Some(value) => by_name.insert(name, value),
            None => by_name.remove(&name),
        };
    }
    by_name.into_iter().collect()
}

/// The same limit as for the labels that a worker brings itself.
const LABELS_MAX: usize = 64;
