//! An operator changes what a worker may take. These are facts of the server: they survive a reconnect of the worker.

use protocol::order::Configure;
use protocol::{Order, WorkerId};

use crate::input::{Operation, Ticket};
use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Rejection};

pub(crate) fn operate(it: &mut Scheduler, ticket: Ticket, id: WorkerId, operation: Operation) {
    let session = it.ready_session(id);
    let Some(worker) = it.fleet.worker_mut(id) else {
        it.reply(ticket, Answer::Rejected(Rejection::UnknownWorker));
        return;
    };
    let mut configure = None;
    match operation {
        Operation::Cordon => worker.row.cordoned = true,
        Operation::Uncordon => worker.row.cordoned = false,
        Operation::Drain => {
            worker.draining = true;
            configure = Some(Configure { drain: true, ..Configure::default() });
        }
        Operation::Slots(slots) => {
            worker.row.slots = Some(slots);
            configure = Some(Configure { slots: Some(slots), ..Configure::default() });
        }
        Operation::Forget if worker.link.session().is_some() || !worker.held.is_empty() => {
            it.reply(ticket, Answer::Rejected(Rejection::WorkerConnected));
            return;
        }
        Operation::Forget => {
            it.forget_worker(id);
            it.reply(ticket, Answer::Done);
            return;
        }
    }
    let row = worker.row.clone();
    it.change(Change::Worker(row));
    if let (Some(session), Some(configure)) = (session, configure) {
        it.send(session, Order::Configure(configure));
    }
    it.fleet.refresh(id);
    it.fleet.note_growth();
    it.reply(ticket, Answer::Done);
}
