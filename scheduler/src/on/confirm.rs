//! An attempt was given up while its worker was out of reach, without anybody knowing whether its container is gone. Its worker is back and
//! says that it is: by the end of the attempt, or by not having it although it would know. If the job was cancelled, then or before it had
//! another attempt, that confirms the cancel.

use alloc::vec::Vec;

use protocol::report::Phase;
use protocol::{JobId, Now, RuntimeKind, Token, WorkerId};

use crate::fleet::{Doubt, Link};
use crate::job::{Attempt, Job};
use crate::on::inventory::Told;
use crate::scheduler::Scheduler;
use crate::step::Change;

/// As many as a worker may hold at once, and some: who stays away for longer is asked about the latest.
const DOUBTS_MAX: usize = 32_768;

/// Nobody knows whether the container of this attempt is gone. One that is `unsettled` was not sent to its worker within this session, and
/// before a worker has told what it has nothing is sent to it at all.
pub(crate) fn doubt(it: &mut Scheduler, id: WorkerId, token: Token, runtime: RuntimeKind, unsettled: bool) {
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

/// The same, of the last attempt of a job that goes on.
pub(crate) fn doubt_live(it: &mut Scheduler, job: JobId, attempt: &Attempt) {
    let Some(live) = it.jobs.get_mut(&job) else { return };
    let token = attempt.token(job);
    live.past_mut().in_doubt = Some(token);
    let Some(runtime) = it.jobs.get(&job).and_then(|job| it.definition(job)).map(|it| it.runtime()) else {
        return;
    };
    doubt(it, attempt.worker, token, runtime, attempt.unsettled);
}

/// A job that goes on has another attempt behind the one in doubt, or ends otherwise: nothing is to be confirmed any more.
pub(crate) fn forget(it: &mut Scheduler, job: JobId) {
    let Some(past) = it.jobs.get_mut(&job).and_then(|job| job.past.as_mut()) else { return };
    if let (Some(token), Some(holder)) = (past.in_doubt.take(), past.last)
        && let Some(worker) = it.fleet.worker_mut(holder.worker)
    {
        worker.doubts.remove(&token);
    }
}

/// An attempt that is not current has ended, or was given back: so says the worker that had it.
pub(crate) fn ended(it: &mut Scheduler, now: Now, id: WorkerId, token: Token) {
    let doubted = it.fleet.worker_mut(id).and_then(|worker| worker.doubts.remove(&token));
    if doubted.is_none() {
        return;
    }
    if let Some(past) = it.jobs.get_mut(&token.job).map(Job::past_mut) {
        past.in_doubt = past.in_doubt.filter(|of| *of != token);
    } else {
        it.change(Change::Confirmed { token, worker: id, at: now.utc });
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
