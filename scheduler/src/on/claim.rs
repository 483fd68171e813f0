//! Somebody says that it is a worker that we know: it is, or it is told to wait, or all who say so are refused.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use protocol::order::Refused;
use protocol::{Now, Order, SessionId, Uptime, WorkerId};

use crate::claims::{Claim, Holder, Judgement};
use crate::fleet::Worker;
use crate::input::Connected;
use crate::scheduler::Scheduler;
use crate::step::{Change, CloseReason, Effect, Process};
use crate::timers::Alarm;

/// Finds out whether this process is the worker. Where two are heard, nothing of what they say is believed: the session of the one that
/// was let in is closed, and its attempts are those of a worker that is out of reach.
pub(crate) fn claim(it: &mut Scheduler, now: Now, id: WorkerId, hello: &Connected) -> Result<(), Refused> {
    let intervals = it.config.intervals;
    let Some(worker) = it.fleet.worker_mut(id) else { return Ok(()) };
    let is_connected = worker.link.session().is_some();
    let holder = Holder { claim: holder(worker), spoke: worker.spoke, is_connected };
    let process = Process { incarnation: hello.incarnation, number: hello.process };
    let claim = Claim { process, address: hello.address.clone(), heard: now.up, since: now.up };
    let before = worker.claims.until;
    let judgement = worker.claims.judge(claim, holder, intervals);
    let until = worker.claims.until;
    let answer = match judgement {
        Judgement::Enter => Ok(()),
        Judgement::Wait => Err(running_already(id, worker, intervals.lease, intervals.heartbeat / 5)),
        Judgement::Copies => Err(copies(id, worker, intervals.lease)),
    };
    watch(it, id, before, until);
    if let Err(refused) = &answer
        && judgement == Judgement::Copies
    {
        shut_out(it, now, id, refused);
    }
    answer
}

/// Something came on a session that was shut out and has not been told yet, because the store is slow: who says it is alive.
pub(crate) fn heard(it: &mut Scheduler, session: SessionId, at: Uptime) {
    let Some((id, claim)) = it.shut.get(&session) else { return };
    let (id, claim) = (*id, Claim { heard: at, since: at, ..claim.clone() });
    let intervals = it.config.intervals;
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let before = worker.claims.until;
    worker.claims.hear(claim, intervals);
    let until = worker.claims.until;
    watch(it, id, before, until);
}

/// No two copies have been heard for a lease.
pub(crate) fn copies_are_gone(it: &mut Scheduler, id: WorkerId) {
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.claims.until = None;
        it.changed = true;
    }
}

/// Keeps the alarm in step with how long copies are held to be there.
fn watch(it: &mut Scheduler, id: WorkerId, before: Option<Uptime>, until: Option<Uptime>) {
    if before == until {
        return;
    }
    if let Some(at) = before {
        it.timers.clear_alarm(at, Alarm::Copies(id));
    }
    if let Some(at) = until {
        it.timers.set_alarm(at, Alarm::Copies(id));
    }
    it.changed = true;
}

fn holder(worker: &Worker) -> Option<Claim> {
    let (process, address) = (worker.row.process?, worker.card.address.clone());
    Some(Claim { process, address, heard: worker.heard, since: worker.heard })
}

/// What is kept says that nobody is let in, so that a start of the server does not take one of them for a restart.
fn shut_out(it: &mut Scheduler, now: Now, id: WorkerId, refused: &Refused) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let (session, holder) = (worker.link.session(), holder(worker));
    if worker.row.process.replace(Process::NONE) != Some(Process::NONE) {
        let row = worker.row.clone();
        it.change(Change::Worker(row));
    }
    let Some((session, holder)) = session.zip(holder) else { return };
    it.send(session, Order::Refused(refused.clone()));
    it.effect(Effect::Close(session, CloseReason::Refused));
    it.fleet.close(id);
    it.shut.insert(session, (id, holder));
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.since = now.utc;
    }
    it.changed = true;
}

fn running_already(id: WorkerId, worker: &Worker, lease: Duration, retry_after: Duration) -> Refused {
    let text = format!(
        "worker {id} ({:?}) is running, as far as is known, at {}: if that process has ended, this one is let in within {} s; if both are to \
         run, this one needs a state directory of its own (--state-dir; see longshore worker --help)",
        worker.row.name,
        worker.card.address,
        lease.as_secs().max(1),
    );
    Refused { code: CODE.to_string(), text, retry_after }
}

fn copies(id: WorkerId, worker: &Worker, lease: Duration) -> Refused {
    let mut addresses = String::new();
    for address in worker.claims.addresses() {
        if !addresses.is_empty() {
            addresses.push_str(" and ");
        }
        addresses.push_str(address);
    }
    let text = format!(
        "several processes say that they are worker {id} ({:?}), from {addresses}: one state directory is a copy of the other. All are refused \
         until only one has been heard for {} s. Stop the copy, remove its state directory, and start it again: then it is a worker of \
         its own (--state-dir; see longshore worker --help)",
        worker.row.name,
        lease.as_secs().max(1),
    );
    // Often enough that whoever lives is heard within each lease.
    Refused { code: CODE.to_string(), text, retry_after: lease / 3 }
}

const CODE: &str = "cloned_worker";
