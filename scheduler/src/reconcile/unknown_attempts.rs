//! Unknown attempts: this database never created them. They come from commits that a restored backup or a
//! failover has lost (docs/design/failures.md, R14).
//!
//! They go on running and are shown as unmanaged until an operator decides. Their numbers are skipped, so
//! that no two attempts or jobs share one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::order::{Cancel, StopCause};
use protocol::report::Phase;
use protocol::{Fence, JobId, Now, Order, SessionId, Token, WorkerId};

use crate::core::Scheduler;
use crate::job::Job;
use crate::step::{Answer, Change, Rejection};

/// Records that the archive does not contain these attempts of a joining worker.
pub(crate) fn record_announced(scheduler: &mut Scheduler, session: SessionId, tokens: &[Token]) {
    let worker = scheduler.fleet.by_session(session).and_then(|id| scheduler.fleet.worker_mut(id));
    if let Some(session) = worker.and_then(|worker| worker.link.state_mut()) {
        session.unknown.extend(tokens);
    }
}

/// Finds the unknown attempts in a complete inventory.
pub(crate) fn record_unknown(
    scheduler: &mut Scheduler,
    now: Now,
    id: WorkerId,
    known: &[(Token, Phase)],
    announced: &BTreeSet<Token>,
) {
    let mut unknown: BTreeMap<Token, Phase> = known.iter().copied().collect();
    unknown.retain(|token, _| {
        scheduler.held(*token, id).is_none()
            && (announced.contains(token) || is_above_counters(scheduler, *token))
            && !has_other_nonce(scheduler, *token)
    });
    skip_numbers(scheduler, now, unknown.keys());
    // Ended attempts are reported and removed like all others.
    unknown.retain(|_, phase| *phase != Phase::Ended);
    if let Some(worker) = scheduler.fleet.worker_mut(id) {
        worker.holdings.unmanaged = Arc::new(unknown);
    }
}

/// Stops unmanaged attempts on request of an operator. Only their worker stores that order, so it must be
/// connected.
pub(crate) fn stop(scheduler: &mut Scheduler, id: WorkerId, which: Option<(JobId, Fence)>) -> Answer {
    let (Some(session), Some(worker)) = (scheduler.ready_session(id), scheduler.fleet.worker(id)) else {
        return Answer::Rejected(Rejection::WorkerAway);
    };
    let is_meant = |token: &&Token| which.is_none_or(|it| it == (token.job, token.fence));
    let tokens: Vec<Token> = worker.holdings.unmanaged.keys().filter(is_meant).copied().collect();
    if tokens.is_empty() && which.is_some() {
        return Answer::Rejected(Rejection::NotUnmanaged);
    }
    for token in tokens {
        scheduler.send(session, Order::Cancel(Cancel { token, grace: None, cause: StopCause::Cancel }));
    }
    Answer::Done
}

/// An attempt on this worker may be unknown. Before the inventory is complete that is undecided.
pub(crate) fn may_be_unknown(scheduler: &Scheduler, id: WorkerId, token: Token) -> bool {
    if has_other_nonce(scheduler, token) {
        return false;
    }
    is_above_counters(scheduler, token)
        || scheduler.ready_session(id).is_none()
        || scheduler.fleet.worker(id).is_some_and(|worker| worker.holdings.unmanaged.contains_key(&token))
}

/// An unknown attempt waits in the backlog while its job has a live successor. It can be stopped without
/// interrupting anything.
pub(crate) fn is_unstarted_rival(scheduler: &Scheduler, token: Token, phase: Phase) -> bool {
    phase == Phase::Backlog && scheduler.jobs.get(&token.job).is_some()
}

/// Removes an unmanaged attempt that has ended.
pub(crate) fn remove_ended(scheduler: &mut Scheduler, id: WorkerId, token: Token) {
    if scheduler.fleet.worker_mut(id).is_some_and(|worker| worker.holdings.remove_unmanaged(token)) {
        scheduler.fleet.refresh(id);
        scheduler.changed = true;
    }
}

/// The current attempt of this job has the same fence and another nonce, so this token is forged or from another store. It is stopped,
/// whether a Running or an inventory names it.
pub(crate) fn has_other_nonce(scheduler: &Scheduler, token: Token) -> bool {
    let attempt = scheduler.jobs.get(&token.job).and_then(Job::attempt);
    attempt.is_some_and(|attempt| attempt.fence == token.fence && attempt.nonce != token.nonce)
}

/// A number is above all numbers that were assigned.
pub(crate) fn is_above_counters(scheduler: &Scheduler, token: Token) -> bool {
    token.fence > scheduler.counters.fence || token.job > scheduler.counters.job
}

/// Skips all numbers up to those of unknown attempts: in a restored store only, once, and within its reserved gap.
fn skip_numbers<'t>(scheduler: &mut Scheduler, now: Now, unknown: impl Iterator<Item = &'t Token>) {
    let skippable = scheduler.skippable;
    if skippable == 0 || scheduler.has_skipped {
        return;
    }
    let last = (scheduler.counters.job, scheduler.counters.fence);
    let is_credible = |token: &&Token| {
        token.job.0.saturating_sub(last.0.0) <= skippable
            && token.fence.0.saturating_sub(last.1.0) <= skippable
    };
    let (job, fence) = unknown
        .filter(is_credible)
        .fold(last, |(job, fence), token| (job.max(token.job), fence.max(token.fence)));
    if (job, fence) == last || core::mem::replace(&mut scheduler.has_skipped, true) {
        return;
    }
    (scheduler.counters.job, scheduler.counters.fence) = (job, fence);
    scheduler.change(Change::NumbersSkipped { after: last.0, job, fence, at: now.utc });
}
