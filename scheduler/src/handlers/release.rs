//! Releases a job on request of an operator: one in quarantine, one whose attempt waits for a worker that
//! does not answer, or an ended one that keeps its unique key.

use protocol::{JobId, Now, Token};

use crate::core::Scheduler;
use crate::handlers::{attempt_end, expire, report, unique};
use crate::input::ReleaseRequest;
use crate::job::{Attempt, Job, LiveState};
use crate::step::{Answer, Change, ClosedAttempt, Note, Rejection};

pub(crate) fn release(scheduler: &mut Scheduler, now: Now, request: ReleaseRequest) {
    let Some(job) = scheduler.live_job(request.job) else {
        let is_freed = unique::release(scheduler, request.job);
        let answer = if is_freed { Answer::Done } else { Answer::Rejected(Rejection::NotLive) };
        scheduler.reply(request.ticket, answer);
        return;
    };
    let state = job.state();
    match &job.live_state {
        // The job is already released; the request may be a repetition.
        LiveState::Scheduled | LiveState::Queued(_) => {}
        LiveState::Quarantined => {
            record_release(scheduler, now, &request);
            requeue(scheduler, now, request.job);
        }
        LiveState::Held(attempt) if is_releasable(scheduler, job, attempt) => {
            let token = attempt.token(request.job);
            record_release(scheduler, now, &request);
            give_up(scheduler, now, token);
        }
        LiveState::Held(_) | LiveState::Parent { .. } => {
            scheduler.reply(request.ticket, Answer::Rejected(Rejection::NothingToRelease(state)));
            return;
        }
    }
    scheduler.reply(request.ticket, Answer::Done);
}

/// No one can report what became of this attempt: its worker or the runtime there does not answer.
fn is_releasable(scheduler: &Scheduler, job: &Job, attempt: &Attempt) -> bool {
    let Some(worker) = scheduler.fleet.worker(attempt.worker) else { return false };
    let Some(definition) = scheduler.definitions.at(job.definition) else { return false };
    !worker.link.is_ready()
        || attempt.was_missing_at_reconnect()
        || !worker.capacity.observes(definition.runtime())
}

/// Declares the attempt lost, whatever its definition says. It may still run, so its worker is told to stop
/// it, now or when it reconnects.
fn give_up(scheduler: &mut Scheduler, now: Now, token: Token) {
    let Some(attempt) = scheduler.jobs.get(&token.job).and_then(Job::attempt) else { return };
    let (worker, started_at) = (attempt.worker, attempt.started_at());
    let closed = ClosedAttempt::lost(
        now,
        token,
        started_at,
        "a person gave it up: its worker could not say what became of it",
    );
    attempt_end::give_up(scheduler, now, token.job, closed);
    if let Some(session) = scheduler.ready_session(worker) {
        report::supersede(scheduler, session, token);
    }
    if scheduler.jobs.get(&token.job).is_some_and(|job| matches!(job.live_state, LiveState::Quarantined)) {
        requeue(scheduler, now, token.job);
    }
}

/// Queues a quarantined job; its losses are forgotten.
fn requeue(scheduler: &mut Scheduler, now: Now, id: JobId) {
    if let Some(job) = scheduler.jobs.get_mut(&id) {
        job.extras_mut().losses.clear();
    }
    attempt_end::queue(scheduler, id);
    scheduler.change(Change::QuarantineReleased { job: id });
    expire::start_queue_timeout(scheduler, id, now.utc);
}

fn record_release(scheduler: &mut Scheduler, now: Now, request: &ReleaseRequest) {
    let note = Note::Released { by: request.by.clone() };
    scheduler.change(Change::Noted { job: request.job, at: now.utc, note });
}
