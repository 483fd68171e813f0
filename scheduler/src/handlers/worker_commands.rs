//! Operator commands about one worker. They are stored and survive restarts and reconnects.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{JobId, Now, Order, WorkerId};

use crate::core::Scheduler;
use crate::fleet::health::Health;
use crate::handlers::{drain, forget, revoke};
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
    let is_cordon = matches!(operation, Operation::Cordon(_));
    match operation {
        Operation::Cordon(origin) => worker.row.set_cordon(Intervention::at(now, origin)),
        Operation::Uncordon => {
            (worker.row.cordoned, worker.row.cordon) = (false, None);
            drain::end(scheduler, id);
        }
        Operation::Drain(timeout, origin) => {
            worker.row.set_cordon(Intervention::at(now, origin));
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
    let (row, settings) = (worker.row.clone(), worker.settings());
    scheduler.change(Change::Worker(row));
    if let Some(session) = scheduler.ready_session(id).filter(|_| settings != before) {
        scheduler.send(session, Order::Configure(settings));
    }
    scheduler.fleet.reclassify_known(id);
    scheduler.fleet.refresh(id);
    scheduler.fleet.mark_capacity_grown(id);
    if is_cordon {
        recall_backlog(scheduler, now, id);
    }
    scheduler.reply(ticket, Answer::Done);
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
