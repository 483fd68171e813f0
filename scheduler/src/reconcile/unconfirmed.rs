//! Unconfirmed attempts: they were lost while their worker was out of reach, so their containers may still
//! exist. The worker confirms them later: by a report of the end, or by an inventory without them. If the job
//! was cancelled, the last confirmation confirms the cancel.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::report::Phase;
use protocol::{JobId, Now, Token, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::UnconfirmedAttempt;
use crate::job::{Attempt, Job};
use crate::reconcile::received_inventory::ReceivedInventory;
use crate::reservation::Reserved;
use crate::step::{Change, Note};

/// Unconfirmed attempts per job. With more of them not all are known, and a cancel is confirmed after the
/// next start of the server only.
const UNCONFIRMED_PER_JOB_MAX: usize = 64;

/// Remembers that the container of this lost attempt may still exist.
pub(crate) fn add_unconfirmed(scheduler: &mut Scheduler, id: JobId, attempt: &Attempt) {
    let Some(job) = scheduler.jobs.get_mut(&id) else { return };
    let token = attempt.token(id);
    let unconfirmed = &mut job.extras_mut().unconfirmed;
    if unconfirmed.len() >= UNCONFIRMED_PER_JOB_MAX {
        return;
    }
    unconfirmed.push((token, attempt.worker));
    let Some(definition) = scheduler.jobs.get(&id).and_then(|job| scheduler.definition(job)) else {
        return;
    };
    let gpus = attempt.gpus.to_vec();
    await_confirmation(
        scheduler,
        attempt.worker,
        token,
        (&definition, gpus),
        attempt.was_missing_at_reconnect(),
    );
}

/// Waits for the worker to confirm this attempt. An attempt that `was_missing_at_reconnect` was not sent in this session, and
/// nothing is sent to a worker before its inventory.
pub(crate) fn await_confirmation(
    scheduler: &mut Scheduler,
    id: WorkerId,
    token: Token,
    (definition, gpus): (&Definition, Vec<String>),
    was_missing_at_reconnect: bool,
) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let session = worker.link.ready().filter(|_| !was_missing_at_reconnect);
    let attempt = UnconfirmedAttempt { runtime: definition.runtime(), session };
    worker.holdings.await_confirmation(token, attempt, Reserved::of(&definition.container.resources, gpus));
    scheduler.fleet.refresh(id);
}

/// Drops all unconfirmed attempts of a job that has ended otherwise.
pub(crate) fn drop_all(scheduler: &mut Scheduler, job: JobId) {
    let Some(extras) = scheduler.jobs.get_mut(&job).and_then(|job| job.extras.as_mut()) else { return };
    for (token, holder) in core::mem::take(&mut extras.unconfirmed) {
        if let Some(worker) = scheduler.fleet.worker_mut(holder) {
            worker.holdings.drop_unconfirmed(token);
            scheduler.fleet.refresh(holder);
        }
    }
}

/// Keeps the unconfirmed attempts of a cancelled job after its end. If a worker was forgotten while the job went on elsewhere,
/// nobody can confirm all of them, and they are dropped.
pub(crate) fn keep_after_end(scheduler: &mut Scheduler, id: JobId) {
    let Some(extras) = scheduler.jobs.get(&id).and_then(|job| job.extras.as_ref()) else { return };
    let can_be_confirmed = extras.unconfirmed.len() < UNCONFIRMED_PER_JOB_MAX
        && extras.unconfirmed.iter().all(|(token, holder)| awaits(scheduler, *holder, *token));
    match extras.unconfirmed.len() {
        _ if !can_be_confirmed => drop_all(scheduler, id),
        several @ 2.. => drop(scheduler.unconfirmed.insert(id, several)),
        _ => {}
    }
}

fn awaits(scheduler: &Scheduler, holder: WorkerId, token: Token) -> bool {
    scheduler.fleet.worker(holder).is_some_and(|worker| worker.holdings.unconfirmed.contains_key(&token))
}

/// Drops the unconfirmed attempts of a worker that is forgotten. Nobody can confirm them any more, so the other attempts of the same ended
/// jobs are dropped, too. Walks over all workers: forgetting one is rare.
pub(crate) fn drop_worker(scheduler: &mut Scheduler, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let tokens: Vec<Token> = worker.holdings.unconfirmed.keys().copied().collect();
    for token in &tokens {
        worker.holdings.drop_unconfirmed(*token);
    }
    scheduler.fleet.refresh(id);
    for token in tokens {
        if !scheduler.jobs.contains_key(&token.job) && scheduler.unconfirmed.remove(&token.job).is_some() {
            scheduler.fleet.drop_unconfirmed(token.job);
        }
    }
}

/// Records that the worker confirmed the end of an attempt that is not current.
pub(crate) fn confirm(scheduler: &mut Scheduler, now: Now, id: WorkerId, token: Token) {
    let doubted = scheduler.fleet.worker_mut(id).and_then(|worker| worker.holdings.drop_unconfirmed(token));
    if doubted.is_none() {
        return;
    }
    scheduler.fleet.refresh(id);
    let is_over = match scheduler.jobs.get_mut(&token.job).map(Job::extras_mut) {
        Some(extras) if extras.unconfirmed.len() < UNCONFIRMED_PER_JOB_MAX => {
            extras.unconfirmed.retain(|(of, _)| *of != token);
            false
        }
        Some(_) => false,
        None => take_last(scheduler, token.job),
    };
    if is_over {
        scheduler.change(Change::ContainerGone { token, worker: id, at: now.utc });
    } else {
        let note = Note::ContainerGone { token, worker: id };
        scheduler.change(Change::Noted { job: token.job, at: now.utc, note });
    }
}

/// Takes one unconfirmed attempt of an ended job. Returns whether it was the last.
fn take_last(scheduler: &mut Scheduler, job: JobId) -> bool {
    match scheduler.unconfirmed.get_mut(&job) {
        Some(left) if *left > 1 => {
            *left -= 1;
            false
        }
        _ => {
            scheduler.unconfirmed.remove(&job);
            true
        }
    }
}

/// Confirms all attempts that a complete inventory does not list.
pub(crate) fn confirm_absent(
    scheduler: &mut Scheduler,
    now: Now,
    id: WorkerId,
    received: &ReceivedInventory,
) {
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    let gone: Vec<Token> = worker
        .holdings
        .unconfirmed
        .iter()
        .filter(|(token, attempt)| is_gone(received, **token, **attempt))
        .map(|(token, _)| *token)
        .collect();
    for token in gone {
        confirm(scheduler, now, id, token);
    }
}

fn is_gone(received: &ReceivedInventory, token: Token, attempt: UnconfirmedAttempt) -> bool {
    // An attempt that was sent in this session may be on its way while the worker writes a further list.
    let is_older = received.is_first || attempt.session != Some(received.session);
    match received.known.get(&token) {
        // The attempt waits in the backlog and is stopped before it may start.
        Some(Phase::Backlog) => received.is_first,
        Some(_) => false,
        None => is_older && received.complete.contains(&attempt.runtime),
    }
}
