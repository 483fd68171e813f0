//! Somebody wants a job not to run, or to stop. Cancelled means that its container is gone.

use alloc::string::String;

use protocol::order::{Cancel, StopCause};
use protocol::{Fence, JobId, Now, Order, WorkerId};

use crate::input::CancelRequest;
use crate::job::{Job, Standing, State};
use crate::on::close;
use crate::scheduler::Scheduler;
use crate::step::{Answer, Change, Note, Rejection};
use crate::timers::Alarm;

pub(crate) fn cancel(it: &mut Scheduler, now: Now, request: CancelRequest) {
    let Some(job) = it.live_job(request.job) else {
        it.reply(request.ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    let state = job.state();
    match &job.standing {
        Standing::Held(attempt) => {
            let fence = attempt.fence;
            if attempt.stopping != Some(StopCause::Cancel) {
                let note = Note::CancelRequested { by: request.by.clone() };
                it.change(Change::Noted { job: request.job, at: now.utc, note });
            }
            stop(it, now, request.job, fence, StopCause::Cancel, request.by);
            it.reply(request.ticket, Answer::Cancelling(state));
        }
        Standing::Scheduled | Standing::Queued(_) | Standing::Quarantined => {
            let reason = alloc::format!("cancelled by {}", request.by);
            close::end_unheld(it, now, request.job, State::Cancelled, reason);
            it.reply(request.ticket, Answer::Cancelling(State::Cancelled));
        }
    }
}

/// Stops the current attempt of a job, unless it is being stopped already: the cause recorded first wins. But a cancel is never dropped: it
/// decides what becomes of the job after the attempt's end, whatever that is called.
pub(crate) fn stop(it: &mut Scheduler, now: Now, id: JobId, fence: Fence, cause: StopCause, by: String) {
    let Some(attempt) = it.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    let is_news = attempt.stopping.is_none_or(|before| cause == StopCause::Cancel && before != cause);
    if attempt.fence != fence || !is_news {
        return;
    }
    attempt.stopping = Some(cause);
    let (token, holder) = (attempt.token(id), attempt.worker);
    it.change(Change::Stopping { token, cause, at: now.utc, by });
    if let Some(session) = it.ready_session(holder) {
        it.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    } else if cause == StopCause::Cancel {
        give_up_in_time(it, now, id, holder);
    }
}

/// A cancelled job does not wait for a worker that stays away, whatever `on_lost` says (FAULTS.md F20).
fn give_up_in_time(it: &mut Scheduler, now: Now, id: JobId, holder: WorkerId) {
    let Some(after) = it.jobs.get(&id).and_then(|job| it.definition(job)).map(|it| it.patience()) else {
        return;
    };
    let Some(heard) = it.fleet.worker(holder).filter(|worker| worker.unreachable).map(|worker| worker.heard)
    else {
        return;
    };
    let Some(attempt) = it.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    if attempt.loss_at.is_none() {
        let at = (heard + after).max(now.up);
        attempt.loss_at = Some(at);
        it.timers.set_alarm(at, Alarm::Loss(id, attempt.fence));
    }
}
