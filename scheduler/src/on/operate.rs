//! An operator changes what a worker may take. These are facts of the server: they survive its restarts and reconnects of the worker.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{Now, Order, WorkerId};

use crate::input::{Operation, Ticket};
use crate::on::{drain, strangers};
use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Rejection};

pub(crate) fn operate(it: &mut Scheduler, now: Now, ticket: Ticket, id: WorkerId, operation: Operation) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        it.reply(ticket, Answer::Rejected(Rejection::UnknownWorker));
        return;
    };
    let told = worker.settings();
    match operation {
        Operation::Cordon => worker.row.cordoned = true,
        Operation::Uncordon => {
            worker.row.cordoned = false;
            drain::end(it, id);
        }
        Operation::Drain(patience) => drain::begin(it, now, id, patience),
        Operation::Slots(slots) => worker.row.slots = Some(slots),
        Operation::Labels(changes) => {
            let labels = laid_over(&worker.row.labels, changes);
            if labels.len() > LABELS_MAX {
                it.reply(ticket, Answer::Rejected(Rejection::TooManyLabels));
                return;
            }
            worker.row.labels = labels;
        }
        // Copies of it that are heard are as good as connected.
        Operation::Forget
            if worker.link.session().is_some()
                || worker.claims.until.is_some()
                || !worker.held.is_empty() =>
        {
            it.reply(ticket, Answer::Rejected(Rejection::WorkerConnected));
            return;
        }
        Operation::Forget => {
            it.forget_worker(id);
            it.reply(ticket, Answer::Done);
            return;
        }
        Operation::StopUnmanaged(which) => {
            let answer = strangers::stop(it, id, which);
            it.reply(ticket, answer);
            return;
        }
    }
    let Some(worker) = it.fleet.worker(id) else { return };
    let (row, settings) = (worker.row.clone(), worker.settings());
    it.change(Change::Worker(row));
    if let Some(session) = it.ready_session(id).filter(|_| settings != told) {
        it.send(session, Order::Configure(settings));
    }
    it.fleet.refresh(id);
    it.fleet.note_growth();
    it.reply(ticket, Answer::Done);
}

/// Labels after some were set and some were taken away.
fn laid_over(labels: &[(String, String)], changes: Vec<(String, Option<String>)>) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<String, String> = labels.iter().cloned().collect();
    for (name, value) in changes {
        match value {
            Some(value) => by_name.insert(name, value),
            None => by_name.remove(&name),
        };
    }
    by_name.into_iter().collect()
}

/// As many as a worker may bring itself.
const LABELS_MAX: usize = 64;
