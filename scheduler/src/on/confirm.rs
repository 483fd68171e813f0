//! An attempt was given up while its worker was out of reach, without anybody knowing whether its container is gone. Its worker is back and
//! says that it is: by the end of the attempt, or by not having it although it would know. If the job was cancelled, then or behind later
//! attempts, the last one of which that is said confirms the cancel.

use alloc::vec::Vec;

use protocol::report::Phase;
use protocol::{JobId, Now, RuntimeKind, Token, WorkerId};

use crate::fleet::{Doubt, Link};
use crate::job::{Attempt, Job};
use crate::on::inventory::Told;
use crate::scheduler::Scheduler;
use crate::step::{Change, Note};

/// As many as a worker may hold at once, and some: who stays away for longer is asked about the latest.
const DOUBTS_MAX: usize = 32_768;

/// So many attempts of one job may be in doubt at once: far more than anything that is lost every day. Of a job that had more not all are
/// known, and no cancel of it is confirmed before the next start.
const IN_DOUBT_MAX: usize = 64;

/// Nobody knows whether the container of this attempt is gone, which is not its job's any more.
pub(crate) fn doubt(it: &mut Scheduler, id: JobId, attempt: &Attempt) {
    let Some(job) = it.jobs.get_mut(&id) else { return };
    let token = attempt.token(id);
    let in_doubt = &mut job.past_mut().in_doubt;
    if in_doubt.len() >= IN_DOUBT_MAX {
        return;
    }
    in_doubt.push((token, attempt.worker));
    let Some(runtime) = it.jobs.get(&id).and_then(|job| it.definition(job)).map(|it| it.runtime()) else {
        return;
    };
    ask(it, attempt.worker, token, runtime, attempt.unsettled);
}

/// What this worker says next of this attempt is waited for. One that is `unsettled` was not sent to it within this session, and before a
/// worker has told what it has nothing is sent to it at all.
pub(crate) fn ask(it: &mut Scheduler, id: WorkerId, token: Token, runtime: RuntimeKind, unsettled: bool) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let session = match worker.link {
        Link::Ready(session) if !unsettled => Some(session),
        _ => None,
    };
    worker.doubts.insert(token, Doubt { runtime, session });
    if worker.doubts.len() > DOUBTS_MAX {
        worker.doubts.pop_first();
    }
}

/// The job ends, and there is nothing to be confirmed.
pub(crate) fn forget(it: &mut Scheduler, job: JobId) {
    let Some(past) = it.jobs.get_mut(&job).and_then(|job| job.past.as_mut()) else { return };
    for (token, holder) in core::mem::take(&mut past.in_doubt) {
        if let Some(worker) = it.fleet.worker_mut(holder) {
            worker.doubts.remove(&token);
        }
    }
}

/// The job ends as cancelled, and is gone from the scheduler: its workers confirm that, if they come back.
pub(crate) fn leave(it: &mut Scheduler, id: JobId) {
    let Some(past) = it.jobs.get(&id).and_then(|job| job.past.as_ref()) else { return };
    match past.in_doubt.len() {
        IN_DOUBT_MAX.. => forget(it, id),
        several @ 2.. => drop(it.unconfirmed.insert(id, several)),
        _ => {}
    }
}

/// An attempt that is not current has ended, or was given back: so says the worker that had it.
pub(crate) fn ended(it: &mut Scheduler, now: Now, id: WorkerId, token: Token) {
    let doubted = it.fleet.worker_mut(id).and_then(|worker| worker.doubts.remove(&token));
    if doubted.is_none() {
        return;
    }
    let is_over = match it.jobs.get_mut(&token.job).map(Job::past_mut) {
        Some(past) if past.in_doubt.len() < IN_DOUBT_MAX => {
            past.in_doubt.retain(|(of, _)| *of != token);
            false
        }
        Some(_) => false,
        None => is_last(it, token.job),
    };
    if is_over {
        it.change(Change::Confirmed { token, worker: id, at: now.utc });
    } else {
        let note = Note::Confirmed { token, worker: id };
        it.change(Change::Noted { job: token.job, at: now.utc, note });
    }
}

/// Whether no other attempt of this cancelled job is in doubt.
fn is_last(it: &mut Scheduler, job: JobId) -> bool {
    match it.unconfirmed.get_mut(&job) {
        Some(left) if *left > 1 => {
            *left -= 1;
            false
        }
        _ => {
            it.unconfirmed.remove(&job);
            true
        }
    }
}

/// The worker has told all that it has.
pub(crate) fn listed(it: &mut Scheduler, now: Now, id: WorkerId, told: &Told) {
    let Some(worker) = it.fleet.worker(id) else { return };
    let gone: Vec<Token> = worker
        .doubts
        .iter()
        .filter(|(token, doubt)| is_gone(told, **token, **doubt))
        .map(|(token, _)| *token)
        .collect();
    for token in gone {
        ended(it, now, id, token);
    }
}

fn is_gone(told: &Told, token: Token, doubt: Doubt) -> bool {
    // What was sent within this session may be on its way to the worker while it writes a further list.
    let is_older = told.is_first || doubt.session != Some(told.session);
    match told.known.get(&token) {
        // It waits there, and is told to stop before it may start.
        Some(Phase::Backlog) => told.is_first,
        Some(_) => false,
        None => is_older && told.complete.contains(&doubt.runtime),
    }
}
