//! Cancels a job. A job ends as cancelled when its container is gone.

use alloc::string::String;

use protocol::order::{Cancel, StopCause};
use protocol::{Fence, JobId, Now, Order, WorkerId};

use crate::core::Scheduler;
use crate::handlers::{attempt_end, loss, run_on};
use crate::input::{CancelRequest, CancelScope};
use crate::job::{Job, LiveState};
use crate::limits::gate;
use crate::state::State;
use crate::step::{Answer, Change, Note, Rejection};

pub(crate) fn cancel(scheduler: &mut Scheduler, now: Now, request: CancelRequest) {
    let Some(job) = scheduler.live_job(request.job) else {
        scheduler.reply(request.ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    let state = job.state();
    match &job.live_state {
        LiveState::Held(_) if request.scope == CancelScope::Waiting => {
            scheduler.reply(request.ticket, Answer::Rejected(Rejection::NotWaiting(state)));
        }
        LiveState::Held(_) => {
            cancel_held(scheduler, now, request.job, request.by);
            scheduler.reply(request.ticket, Answer::CancelRequested { state });
        }
        LiveState::Scheduled | LiveState::Queued(_) | LiveState::Quarantined => {
            end_waiting(scheduler, now, request.job, &request.by);
            scheduler.reply(request.ticket, Answer::CancelRequested { state: State::Cancelled });
        }
        LiveState::Parent { .. }
            if request.scope == CancelScope::Waiting && run_on::is_held(scheduler, request.job) =>
        {
            scheduler.reply(request.ticket, Answer::Rejected(Rejection::NotWaiting(state)));
        }
        LiveState::Parent { .. } => {
            run_on::cancel_parent(scheduler, now, request.job, request.by);
            let state = scheduler.jobs.get(&request.job).map_or(State::Cancelled, Job::state);
            scheduler.reply(request.ticket, Answer::CancelRequested { state });
        }
    }
}

/// Cancels a job for another one.
pub(crate) fn cancel_for(scheduler: &mut Scheduler, now: Now, id: JobId, by: String) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    match &job.live_state {
        LiveState::Held(_) => cancel_held(scheduler, now, id, by),
        LiveState::Scheduled | LiveState::Queued(_) | LiveState::Quarantined => {
            end_waiting(scheduler, now, id, &by);
        }
        LiveState::Parent { .. } => run_on::cancel_parent(scheduler, now, id, by),
    }
}

/// Ends a job that has no attempt on a worker.
fn end_waiting(scheduler: &mut Scheduler, now: Now, id: JobId, by: &str) {
    let reason = alloc::format!("cancelled by {by}");
    attempt_end::end_unheld(scheduler, now, id, State::Cancelled, reason);
}

/// Cancels a job that a worker has. The first requester is noted, and becomes the reason of the end.
fn cancel_held(scheduler: &mut Scheduler, now: Now, id: JobId, by: String) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else { return };
    let fence = attempt.fence;
    if attempt.stopping != Some(StopCause::Cancel) {
        attempt.cancelled_by = Some(by.as_str().into());
        let note = Note::CancelRequested { by: by.clone() };
        scheduler.change(Change::Noted { job: id, at: now.utc, note });
    }
    stop(scheduler, now, id, fence, StopCause::Cancel, by);
}

/// Stops the current attempt of a job. The first recorded cause wins, but a cancel is always recorded,
/// because it decides the state of the job after the attempt's end.
pub(crate) fn stop(
    scheduler: &mut Scheduler,
    now: Now,
    id: JobId,
    fence: Fence,
    cause: StopCause,
    by: String,
) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    let is_news = attempt.stopping.is_none_or(|before| cause == StopCause::Cancel && before != cause);
    if attempt.fence != fence || !is_news {
        return;
    }
    attempt.stopping = Some(cause);
    let (token, holder) = (attempt.token(id), attempt.worker);
    if cause == StopCause::Cancel {
        gate::leave_competition(scheduler, id);
    }
    scheduler.change(Change::Stopping { token, cause, at: now.utc, by });
    if let Some(session) = scheduler.ready_session(holder) {
        scheduler.withdraw_grant(session, token);
        scheduler.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    } else if cause == StopCause::Cancel {
        set_loss_alarm(scheduler, now, id, holder);
    }
}

/// A cancelled job does not wait for a worker that is not reconciled, whatever `on_lost` says (docs/design/failures.md, F20).
fn set_loss_alarm(scheduler: &mut Scheduler, now: Now, id: JobId, holder: WorkerId) {
    let Some(definition) = scheduler.jobs.get(&id).and_then(|job| scheduler.definition(job)) else {
        return;
    };
    let after = definition.loss_timeout();
    let Some(contact) = scheduler.fleet.worker(holder).map(|worker| worker.lease.contact) else { return };
    let Some(attempt) = scheduler.jobs.get(&id).and_then(Job::attempt) else {
        return;
    };
    let at = (contact + after).max(now.up);
    // `on_lost_timeout`, or the lack of a successor, would have set a later alarm.
    if attempt.loss_at.is_none_or(|later| later > at) {
        loss::arm(scheduler, id, at);
    }
}
