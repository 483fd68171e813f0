//! Changes the due time or the priority of a job that waits. A job that a worker has cannot be changed any more.

use protocol::Now;

use crate::core::Scheduler;
use crate::handlers::{admission, attempt_end, expire};
use crate::input::UpdateRequest;
use crate::job::LiveState;
use crate::state::State;
use crate::step::{Answer, Change, Note, Rejection, Updated};
use crate::timers::WallTimer;

pub(crate) fn update(scheduler: &mut Scheduler, now: Now, request: UpdateRequest) {
    let UpdateRequest { ticket, job: id, update, by } = request;
    let Some(job) = scheduler.live_job(id) else {
        scheduler.reply(ticket, Answer::Rejected(Rejection::NotLive));
        return;
    };
    if !matches!(job.live_state, LiveState::Scheduled | LiveState::Queued(_)) {
        let state = job.state();
        scheduler.reply(ticket, Answer::Rejected(Rejection::NotWaiting(state)));
        return;
    }
    let due_at = update.run_at.map_or(job.due_at, |start| start.resolve(now.utc));
    let priority = update.priority.unwrap_or(job.priority);
    let was_queued = matches!(job.live_state, LiveState::Queued(_));
    if (due_at, priority) != (job.due_at, job.priority) {
        attempt_end::leave_queue(scheduler, id);
        if let Some(job) = scheduler.jobs.get_mut(&id) {
            (job.due_at, job.priority) = (due_at, priority);
            job.live_state = LiveState::Scheduled;
        }
        let state = if due_at > now.utc || attempt_end::waits_for_another(scheduler, id) {
            // If the job waits for an earlier one, this has no effect: the end of that job queues it.
            scheduler.timers.set_wall(due_at, WallTimer::Due(id));
            State::Scheduled
        } else {
            attempt_end::queue(scheduler, id);
            State::Queued
        };
        let note = Note::Updated { by, due_at, priority };
        scheduler.change(Change::Noted { job: id, at: now.utc, note });
        scheduler.change(Change::Updated(Updated { job: id, state, due_at, priority }));
        // The time in the queue of a job that comes after others begins when they have ended.
        if update.run_at.is_some() && !scheduler.dependencies.must_wait(id) {
            expire::start_queue_timeout(scheduler, id, due_at);
        }
        if !was_queued {
            admission::make_room(scheduler, now, id);
        }
    }
    scheduler.reply(ticket, Answer::Done);
}
