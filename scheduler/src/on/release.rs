//! A person lets a job go on: one that is held back for its losses, or one whose attempt waits for a worker that does not answer.

use protocol::{JobId, Now, Token};

use crate::fleet::Link;
use crate::input::ReleaseRequest;
use crate::job::{Attempt, Job, Standing};
use crate::on::{close, inventory, report};
use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Note, Rejection};

pub(crate) fn release(it: &mut Scheduler, now: Now, request: ReleaseRequest) {
    let Some(job) = it.live_job(request.job) else {
        it.reply(request.ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    let state = job.state();
    match &job.standing {
        // It goes on already: whoever asks twice has what was asked for.
        Standing::Scheduled | Standing::Queued(_) => {}
        Standing::Quarantined => {
            note(it, now, &request);
            free(it, request.job);
        }
        Standing::Held(attempt) if waits_in_vain(it, job, attempt) => {
            let token = attempt.token(request.job);
            note(it, now, &request);
            give_up(it, now, token);
        }
        Standing::Held(_) => {
            it.reply(request.ticket, Answer::Rejected(Rejection::NothingToRelease(state)));
            return;
        }
    }
    it.reply(request.ticket, Answer::Done);
}

/// Whether nobody can say what becomes of an attempt: its worker is silent, or its runtime is silent to its worker.
fn waits_in_vain(it: &Scheduler, job: &Job, attempt: &Attempt) -> bool {
    let Some(worker) = it.fleet.worker(attempt.worker) else { return false };
    let Some(definition) = it.definitions.at(job.definition) else { return false };
    match worker.link {
        Link::Away => worker.unreachable,
        // What it has is just being told.
        Link::Joining(_) => false,
        Link::Ready(_) => attempt.unsettled || !worker.offers(definition.runtime()),
    }
}

/// The attempt is lost by a person's word, whatever its definition says of lost ones. It may still run: its worker is told to stop it,
/// now or when it comes back.
fn give_up(it: &mut Scheduler, now: Now, token: Token) {
    let Some(attempt) = it.jobs.get(&token.job).and_then(Job::attempt) else { return };
    let (worker, started_at) = (attempt.worker, attempt.started_at);
    let closed = inventory::gone(
        now,
        token,
        started_at,
        "a person gave it up: its worker could not say what became of it",
    );
    close::give_up(it, now, token.job, closed);
    if let Some(session) = it.ready_session(worker) {
        report::supersede(it, session, token);
    }
    if it.jobs.get(&token.job).is_some_and(|job| matches!(job.standing, Standing::Quarantined)) {
        free(it, token.job);
    }
}

/// A job that is held back is queued again; what it has lost so far counts no more.
fn free(it: &mut Scheduler, id: JobId) {
    if let Some(job) = it.jobs.get_mut(&id) {
        job.past_mut().losses.clear();
    }
    close::queue(it, id);
    it.change(Change::Freed { job: id });
}

fn note(it: &mut Scheduler, now: Now, request: &ReleaseRequest) {
    let note = Note::Freed { by: request.by.clone() };
    it.change(Change::Noted { job: request.job, at: now.utc, note });
}
