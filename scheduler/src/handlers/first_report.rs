//! Watches attempts that were sent to a connected worker, until the worker reports anything about them
//! (docs/design/failures.md, F2).
//!
//! The order is repeated once. If that is not answered either, the session is closed: the worker reconnects, and its
//! inventory decides. A recall is not repeated: of two answers that the worker does not know the attempt, the second could
//! be taken for one about the order that follows the first. Silent workers are left to their lease.

use core::time::Duration;

use protocol::order::Cancel;
use protocol::{Fence, JobId, Now, Order, SessionId, Token, WorkerId};

use crate::batches::BatchMember;
use crate::core::{Scheduler, timeout_of};
use crate::definition::Definition;
use crate::handlers::suspension;
use crate::job::{AwaitedReport, Job, Presence};
use crate::queue::PriorityAgeing;
use crate::step::{CloseReason, Grant};
use crate::timers::{Timers, UptimeTimer};

/// Time for the first report about an attempt: a third of a lease, which is also the longest interval between
/// heartbeats.
pub(crate) fn offer_timeout(lease: Duration) -> Duration {
    lease / 3
}

/// Begins the watch of an attempt that is being sent for the first time on its session.
pub(crate) fn arm(scheduler: &mut Scheduler, now: Now, id: JobId) {
    set(scheduler, now, id, false);
}

/// Begins the watch anew after a recall of an attempt that was never reported: the answer to it gets the same time.
pub(crate) fn recalled(scheduler: &mut Scheduler, now: Now, id: JobId) {
    let is_watched =
        scheduler.jobs.get(&id).and_then(Job::attempt).is_some_and(|it| it.awaited_report().is_some());
    if is_watched {
        arm(scheduler, now, id);
    }
}

/// Ends the watch of an attempt that its worker has reported.
pub(crate) fn reported(scheduler: &mut Scheduler, token: Token, by: WorkerId) {
    if scheduler.held(token, by).is_some() {
        end(scheduler, token.job);
    }
}

/// Ends the watch of an attempt that an inventory has decided about, or will.
pub(crate) fn end(scheduler: &mut Scheduler, id: JobId) {
    if let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) {
        let (token, awaited) = (attempt.token(id), attempt.stop_awaiting());
        clear(&mut scheduler.timers, token, awaited);
    }
}

/// Removes the alarm of a watch that was taken from its attempt.
fn clear(timers: &mut Timers, token: Token, awaited: Option<AwaitedReport>) {
    if let Some(awaited) = awaited {
        timers.clear_uptime(awaited.due_at, UptimeTimer::AwaitedReport(token.job, token.fence));
    }
}

/// Repeats the order that was not answered, or closes the session if it was repeated before.
pub(crate) fn ask_again(scheduler: &mut Scheduler, now: Now, id: JobId, fence: Fence) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else { return };
    if attempt.fence != fence {
        return;
    }
    let (token, worker) = (attempt.token(id), attempt.worker);
    let is_recalled = attempt.recalled && attempt.stopping.is_none();
    let Some(awaited) = attempt.stop_awaiting() else { return };
    let Some(session) = scheduler.ready_session(worker) else {
        // The next inventory decides.
        return;
    };
    if !had_time_to_answer(scheduler, now, token, awaited) {
        put_off(scheduler, now, id, awaited);
    } else if awaited.repeated || is_recalled {
        scheduler.close_session(now, worker, CloseReason::Unanswered(token));
    } else {
        repeat_order(scheduler, session, token);
        set(scheduler, now, id, true);
    }
}

/// The worker has reported something else since, and the server has read it.
fn had_time_to_answer(scheduler: &Scheduler, now: Now, token: Token, awaited: AwaitedReport) -> bool {
    let worker = scheduler.jobs.get(&token.job).and_then(Job::attempt).map(|attempt| attempt.worker);
    let last_message =
        worker.and_then(|id| scheduler.fleet.worker(id)).map(|worker| worker.lease.last_message);
    let since = awaited.sent_at.max(scheduler.leases_renewed_at);
    let is_over = since + offer_timeout(scheduler.config.intervals.lease) <= now.up;
    is_over && last_message.is_some_and(|at| at > since) && !suspension::is_stalled(scheduler, now)
}

/// Sends the order again that the worker has to answer: the last one about the attempt.
fn repeat_order(scheduler: &mut Scheduler, session: SessionId, token: Token) {
    let Some(job) = scheduler.jobs.get(&token.job) else { return };
    let (Some(attempt), Some(definition)) = (job.attempt(), scheduler.definition(job)) else { return };
    if let Some(cause) = attempt.stopping {
        scheduler.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    } else {
        let member = scheduler.batches.member(job.role().numbered_as(token.job));
        let grant = grant_of(scheduler.config.priority_ageing, job, token, &definition, member);
        scheduler.grant(session, grant);
    }
}

/// The order for an attempt; it is the same each time while the attempt is current.
pub(crate) fn grant_of(
    ageing: PriorityAgeing,
    job: &Job,
    token: Token,
    definition: &Definition,
    member: Option<BatchMember>,
) -> Grant {
    let (priority, due_at) = ageing.order_on_worker(job.priority, job.due_at);
    Grant {
        token,
        priority,
        due_at,
        revision: definition.revision,
        name: definition.name.clone(),
        number: job.attempt().map(|attempt| attempt.number).unwrap_or_default(),
        has_overrides: job.has_overrides,
        time_left: timeout_of(job, definition),
        memory_bytes: job.extras.as_ref().and_then(|extras| definition.raised_memory(extras.oom_kills)),
        member,
        gpus: job.attempt().map(|attempt| attempt.gpus.to_vec()).unwrap_or_default(),
    }
}

fn put_off(scheduler: &mut Scheduler, now: Now, id: JobId, awaited: AwaitedReport) {
    let due_at = now.up + offer_timeout(scheduler.config.intervals.lease);
    store(scheduler, id, AwaitedReport { due_at, ..awaited });
}

fn set(scheduler: &mut Scheduler, now: Now, id: JobId, repeated: bool) {
    let due_at = now.up + offer_timeout(scheduler.config.intervals.lease);
    store(scheduler, id, AwaitedReport { sent_at: now.up, due_at, repeated });
}

/// Replaces the watch of an attempt and moves its alarm.
fn store(scheduler: &mut Scheduler, id: JobId, awaited: AwaitedReport) {
    let Some(attempt) = scheduler.jobs.get_mut(&id).and_then(Job::attempt_mut) else { return };
    let (token, earlier) = (attempt.token(id), attempt.stop_awaiting());
    attempt.presence = Presence::Awaited(awaited);
    clear(&mut scheduler.timers, token, earlier);
    scheduler.timers.set_uptime(awaited.due_at, UptimeTimer::AwaitedReport(token.job, token.fence));
}
