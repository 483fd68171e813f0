//! Revokes workers, and takes label names out of what workers may claim.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::Refused;
use protocol::{Now, Order, WorkerId};

use crate::core::Scheduler;
use crate::handlers;
use crate::handlers::forget::arm_worker_expiry;
use crate::handlers::refusal::refused;
use crate::ids::Ticket;
use crate::step::{Answer, Change, CloseReason, Effect};

/// Revokes a worker: its session ends, and its secret is refused from now on. Its attempts count as those of a silent worker. Nothing
/// changes if it is revoked already.
pub(crate) fn revoke(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    if worker.row.revoked_at.is_some() {
        return;
    }
    worker.row.revoked_at = Some(now.utc);
    let (row, session) = (worker.row.clone(), worker.link.session());
    if session.is_some() {
        worker.since = now.utc;
    }
    scheduler.change(Change::Worker(row));
    if let Some(session) = session {
        if let Err(refused) = check(scheduler, id, false) {
            scheduler.send(session, Order::Refused(refused));
        }
        scheduler.effect(Effect::Close(session, CloseReason::Revoked));
        scheduler.fleet.close(id);
    }
    arm_worker_expiry(scheduler, id);
    // Jobs that wait for this worker alone may run anywhere now.
    for job in scheduler.ready.take_pinned(id) {
        handlers::queue(scheduler, job);
    }
}

/// Refuses a revoked worker. One that may join as a new one does so soon.
pub(crate) fn check(scheduler: &Scheduler, id: WorkerId, rejoin: bool) -> Result<(), Refused> {
    let Some(worker) = scheduler.fleet.worker(id).filter(|worker| worker.row.revoked_at.is_some()) else {
        return Ok(());
    };
    let text = format!(
        "worker {id} ({:?}) was revoked: start it with --rejoin and a valid join token, and it joins as a new worker",
        worker.row.name
    );
    let refused = refused("worker_revoked", text);
    Err(if rejoin { Refused { retry_after: REJOIN_RETRY, ..refused } } else { refused })
}

/// Delay before a worker with a new secret connects.
const REJOIN_RETRY: Duration = Duration::from_secs(1);

/// Drops claims of labels with these names. Walks over all workers: it follows an administrator's command.
pub(crate) fn reserve_labels(scheduler: &mut Scheduler, ticket: Ticket, names: &[String]) {
    let claims = |labels: &[(String, String)]| labels.iter().any(|(name, _)| names.contains(name));
    let claimants = scheduler.fleet.iter().filter(|(_, worker)| claims(&worker.info.labels));
    let claimants: Vec<WorkerId> = claimants.map(|(id, _)| id).collect();
    for id in claimants {
        if let Some(worker) = scheduler.fleet.worker_mut(id) {
            worker.info.labels.retain(|(name, _)| !names.contains(name));
        }
        scheduler.fleet.reclassify_known(id);
        scheduler.fleet.refresh(id);
        scheduler.fleet.mark_capacity_grown(id);
        scheduler.changed = true;
    }
    scheduler.reply(ticket, Answer::Done);
}
