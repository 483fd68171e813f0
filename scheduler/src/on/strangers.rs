//! Attempts that this database never gave. Another life of it did, which a restored backup or a failover has undone (FAULTS.md R14).
//!
//! They are left running and shown with their worker, and what they are to become a person decides: nothing is stopped on the word of
//! a database that went back in time. Their numbers are left out from here on, so that no two attempts and no two jobs share one.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::order::{Cancel, StopCause};
use protocol::report::Phase;
use protocol::{Fence, JobId, Now, Order, SessionId, Token, WorkerId};

use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Rejection};

/// How far one worker's word moves the counters on: more than another life of this database can have given, and so little that
/// whoever lies cannot use them up.
const SKIP_MAX: u64 = 1 << 32;
/// How often they are moved on within a term.
const SKIPS_MAX: u32 = 64;

/// The archive does not know these attempts of a worker whose inventory is coming in.
pub(crate) fn announce(it: &mut Scheduler, session: SessionId, tokens: &[Token]) {
    if let Some(worker) = it.fleet.by_session(session).and_then(|id| it.fleet.worker_mut(id)) {
        worker.strangers.extend(tokens);
    }
}

/// Finds the strangers in a whole inventory.
pub(crate) fn meet(it: &mut Scheduler, now: Now, id: WorkerId, known: &[(Token, Phase)]) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let announced = core::mem::take(&mut worker.strangers);
    let mut strangers: BTreeMap<Token, Phase> = known.iter().copied().collect();
    strangers.retain(|token, _| {
        it.held(*token, id).is_none() && (announced.contains(token) || is_beyond(it, *token))
    });
    skip(it, now, strangers.keys());
    // What has ended is reported and removed like anything else.
    strangers.retain(|_, phase| *phase != Phase::Ended);
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.unmanaged = Arc::new(strangers);
    }
}

/// A person has decided: they are stopped. Their worker keeps that word, and it is kept nowhere else; so it must be there to hear it.
pub(crate) fn stop(it: &mut Scheduler, id: WorkerId, which: Option<(JobId, Fence)>) -> Answer {
    let (Some(session), Some(worker)) = (it.ready_session(id), it.fleet.worker(id)) else {
        return Answer::Rejected(Rejection::WorkerAway);
    };
    let is_meant = |token: &&Token| which.is_none_or(|it| it == (token.job, token.fence));
    let tokens: Vec<Token> = worker.unmanaged.keys().filter(is_meant).copied().collect();
    if tokens.is_empty() && which.is_some() {
        return Answer::Rejected(Rejection::NotUnmanaged);
    }
    for token in tokens {
        it.send(session, Order::Cancel(Cancel { token, grace: None, cause: StopCause::Cancel }));
    }
    Answer::Done
}

/// Whether an attempt on this worker is a stranger. Before its inventory is whole that cannot be told.
pub(crate) fn may_be(it: &Scheduler, id: WorkerId, token: Token) -> bool {
    is_beyond(it, token)
        || it.ready_session(id).is_none()
        || it.fleet.worker(id).is_some_and(|worker| worker.unmanaged.contains_key(&token))
}

/// Whether an attempt that is not ours has not begun, and its job is to run here, or runs: of the two, that one can still be kept from running
/// beside the other without anything being interrupted.
pub(crate) fn is_idle_rival(it: &Scheduler, token: Token, phase: Phase) -> bool {
    phase == Phase::Backlog && it.jobs.get(&token.job).is_some()
}

/// An attempt has ended: if it was a stranger, there is nothing to decide about any more.
pub(crate) fn part(it: &mut Scheduler, id: WorkerId, token: Token) {
    if let Some(worker) = it.fleet.worker_mut(id)
        && worker.unmanaged.contains_key(&token)
    {
        Arc::make_mut(&mut worker.unmanaged).remove(&token);
        it.fleet.refresh(id);
        it.changed = true;
    }
}

/// Whether a number is above all that were given.
pub(crate) fn is_beyond(it: &Scheduler, token: Token) -> bool {
    token.fence > it.last.fence || token.job > it.last.job
}

/// Leaves out all numbers up to those of these strangers.
fn skip<'t>(it: &mut Scheduler, now: Now, strangers: impl Iterator<Item = &'t Token>) {
    let last = (it.last.job, it.last.fence);
    let is_credible = |token: &&Token| {
        token.job.0.saturating_sub(last.0.0) <= SKIP_MAX && token.fence.0.saturating_sub(last.1.0) <= SKIP_MAX
    };
    let (job, fence) = strangers
        .filter(is_credible)
        .fold(last, |(job, fence), token| (job.max(token.job), fence.max(token.fence)));
    if (job, fence) == last || it.skips >= SKIPS_MAX {
        return;
    }
    it.skips += 1;
    (it.last.job, it.last.fence) = (job, fence);
    it.change(Change::Skipped { after: last.0, job, fence, at: now.utc });
}
