//! Decides whether a process that says Hello with a known secret is that worker: it is accepted, asked to
//! wait, or refused with all its clones.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use protocol::order::Refused;
use protocol::{Now, Order, SessionId, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::fleet::claims::{Claim, ClaimVerdict, Holder};
use crate::fleet::row::Process;
use crate::input::Connected;
use crate::step::{Change, CloseReason, Effect};
use crate::timers::UptimeTimer;

/// Decides about a Hello. If two processes run, nothing that they report is believed: the accepted session is
/// closed, and its attempts count as those of an unreachable worker.
pub(crate) fn claim(
    scheduler: &mut Scheduler,
    now: Now,
    id: WorkerId,
    hello: &Connected,
) -> Result<(), Refused> {
    let intervals = scheduler.config.intervals;
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return Ok(()) };
    let is_connected = worker.link.session().is_some();
    let holder = Holder { claim: holder(worker), last_message: worker.lease.last_message, is_connected };
    let process = Process { incarnation: hello.incarnation, number: hello.process };
    let claim = Claim { process, address: hello.address.clone(), last_heard: now.up, since: now.up };
    let before = worker.claims.clones_until;
    let verdict = worker.claims.decide(claim, holder, intervals);
    let until = worker.claims.clones_until;
    let answer = match verdict {
        ClaimVerdict::Accept => Ok(()),
        ClaimVerdict::Wait => {
            Err(still_running_refusal(id, worker, intervals.lease, intervals.heartbeat / 5))
        }
        ClaimVerdict::Clones => Err(cloned_refusal(id, worker, intervals.lease)),
    };
    set_clone_alarm(scheduler, id, before, until);
    if let Err(refused) = &answer
        && verdict == ClaimVerdict::Clones
    {
        evict_current(scheduler, now, id, refused);
    }
    answer
}

/// Records a frame of an evicted session that has not received its refusal because the store is slow. It
/// proves that this clone runs.
pub(crate) fn renew_claim(scheduler: &mut Scheduler, session: SessionId, at: Uptime) {
    let Some((id, claim)) = scheduler.evicted_sessions.get(&session) else { return };
    let (id, claim) = (*id, Claim { last_heard: at, since: at, ..claim.clone() });
    let intervals = scheduler.config.intervals;
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let before = worker.claims.clones_until;
    worker.claims.renew(claim, intervals);
    let until = worker.claims.clones_until;
    set_clone_alarm(scheduler, id, before, until);
}

/// Ends the cloned state: no two clones have been heard for a lease.
pub(crate) fn expire_clones(scheduler: &mut Scheduler, id: WorkerId) {
    if let Some(worker) = scheduler.fleet.worker_mut(id) {
        worker.claims.clones_until = None;
        scheduler.changed = true;
    }
}

/// Moves the alarm to the end of the cloned state.
fn set_clone_alarm(scheduler: &mut Scheduler, id: WorkerId, before: Option<Uptime>, until: Option<Uptime>) {
    if before == until {
        return;
    }
    if let Some(at) = before {
        scheduler.timers.clear_uptime(at, UptimeTimer::ClonesGone(id));
    }
    if let Some(at) = until {
        scheduler.timers.set_uptime(at, UptimeTimer::ClonesGone(id));
    }
    scheduler.changed = true;
}

fn holder(worker: &Worker) -> Option<Claim> {
    let (process, address) = (worker.row.process?, worker.info.address.clone());
    Some(Claim { process, address, last_heard: worker.lease.last_heard, since: worker.lease.last_heard })
}

/// Closes the accepted session of a cloned worker. The stored row then names no process, so a restarted
/// server does not take a clone for a restart.
fn evict_current(scheduler: &mut Scheduler, now: Now, id: WorkerId, refused: &Refused) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let (session, holder) = (worker.link.session(), holder(worker));
    if worker.row.process.replace(Process::NONE) != Some(Process::NONE) {
        let row = worker.row.clone();
        scheduler.change(Change::Worker(row));
    }
    let Some((session, holder)) = session.zip(holder) else { return };
    scheduler.send(session, Order::Refused(refused.clone()));
    scheduler.effect(Effect::Close(session, CloseReason::Refused));
    scheduler.fleet.close(id);
    scheduler.evicted_sessions.insert(session, (id, holder));
    if let Some(worker) = scheduler.fleet.worker_mut(id) {
        worker.since = now.utc;
    }
    scheduler.changed = true;
}

fn still_running_refusal(id: WorkerId, worker: &Worker, lease: Duration, retry_after: Duration) -> Refused {
    let address = match worker.info.address.as_str() {
        "" => String::new(),
        address => format!(", at {address}"),
    };
    let text = format!(
        "worker {id} ({:?}) is running, as far as is known{address}: if that process has ended, this one is let in within {} s; if both are to \
         run, this one needs a state directory of its own (--state-dir; see longshore worker --help)",
        worker.row.name,
        lease.as_secs().max(1),
    );
    Refused { code: CODE.to_string(), text, retry_after }
}

fn cloned_refusal(id: WorkerId, worker: &Worker, lease: Duration) -> Refused {
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
    // Often enough that each running clone is heard within each lease.
    Refused { code: CODE.to_string(), text, retry_after: lease / 3 }
}

/// One code for both refusals: the worker tries again after either.
const CODE: &str = "cloned_worker";
