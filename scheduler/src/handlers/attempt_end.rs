//! Ends an attempt and decides what follows for its job: another attempt, quarantine, or the end.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Outcome, ReleaseCause};
use protocol::{AttemptNo, JobId, Now, Timestamp};
use rand::rngs::SmallRng;

use crate::batches::{MAX_FAILURES_REACHED, STOPPED};
use crate::core::Scheduler;
use crate::definition::{Definition, OnLost};
use crate::handlers::{batch, dependency, due, expect, expire, hook, run_on, unique};
use crate::job::{Attempt, Job, LastPlacement, LiveState};
use crate::limits::gate;
use crate::placement;
use crate::queue::{LaneKey, QueueKey};
use crate::reconcile::unconfirmed;
use crate::retry::{self, RetryBudget};
use crate::run_on::RunOnRole;
use crate::state::State;
use crate::step::{Change, ClosedAttempt, Effect, Ended, Note};
use crate::timers::{UptimeTimer, WallTimer};

/// Ends the current attempt of a job. Its container is gone.
pub(crate) fn close(scheduler: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    close_attempt(scheduler, now, id, closed, true);
}

/// Ends the current attempt of a job. Its container may still exist.
pub(crate) fn lose(scheduler: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    close_attempt(scheduler, now, id, closed, false);
}

fn close_attempt(scheduler: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt, is_gone: bool) {
    let Some(attempt) = take_attempt(scheduler, id) else {
        return;
    };
    let Some(definition) = scheduler.jobs.get(&id).and_then(|job| scheduler.definition(job)) else {
        return;
    };
    let token = closed.token;
    run_on::attempt_closed(scheduler, id, attempt.worker, closed.outcome == Outcome::Released);
    let was_slow = attempt.run().is_some_and(|run| run.is_slow);
    expect::record_end(scheduler, now, &definition.name, &closed, was_slow);
    let is_reported_gone = is_gone && closed.outcome == Outcome::Lost;
    let has_started = attempt.has_started() || closed.started_at.is_some();
    // A worker that was away may report the start only with the end.
    if let Some(at) = closed.started_at {
        hook::started(scheduler, id, attempt.number, at);
    }
    let is_settled = match next_step(scheduler, now, id, &attempt, &definition, &closed, is_gone) {
        NextStep::End(state, reason) => {
            if !is_gone && state == State::Cancelled {
                unconfirmed::add_unconfirmed(scheduler, id, &attempt);
            }
            let confirmed = is_confirmed(scheduler, id, state);
            let ended = Ended { job: id, state, at: now.utc, reason, closed: Some(closed), confirmed };
            end(scheduler, now, ended, attempt.number);
            confirmed
        }
        NextStep::Retry(due_at) => {
            let goes_on = !has_started && retry::budget(closed.outcome) == RetryBudget::None;
            remember(scheduler, id, &attempt, is_gone, closed.outcome);
            wait(scheduler, now, id, due_at, closed);
            match goes_on {
                // Its timer has fired if it was recalled for its deadline, and a clock that was set back gives it time again.
                true => expire::arm(scheduler, id),
                false => expire::start_queue_timeout(scheduler, id, due_at.max(now.utc)),
            }
            false
        }
        NextStep::Quarantine => {
            quarantine(scheduler, now, id, &attempt, is_gone, closed);
            false
        }
    };
    if is_reported_gone && !is_settled {
        // A restarted server takes a lost attempt for one that may still run, unless a note says otherwise.
        let note = Note::ContainerGone { token, worker: attempt.worker };
        scheduler.change(Change::Noted { job: id, at: now.utc, note });
    }
    batch::cancel_if_stopped(scheduler, now, id);
}

/// Ends the current attempt on request of an operator. A cancelled job ends with it; any other is quarantined
/// whatever its definition says.
pub(crate) fn give_up(scheduler: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    let is_cancelled = |attempt: &Attempt| attempt.stopping == Some(StopCause::Cancel);
    if scheduler.jobs.get(&id).and_then(Job::attempt).is_some_and(is_cancelled) {
        lose(scheduler, now, id, closed);
    } else if let Some(attempt) = take_attempt(scheduler, id) {
        run_on::attempt_closed(scheduler, id, attempt.worker, false);
        quarantine(scheduler, now, id, &attempt, false, closed);
        batch::cancel_if_stopped(scheduler, now, id);
    }
}

/// Ends a job that has no attempt. Containers of earlier lost attempts may still exist.
pub(crate) fn end_unheld(scheduler: &mut Scheduler, now: Now, id: JobId, state: State, reason: String) {
    leave_queue(scheduler, id);
    let confirmed = is_confirmed(scheduler, id, state);
    let extras = scheduler.jobs.get(&id).and_then(|job| job.extras.as_ref());
    let last = extras.map_or(AttemptNo(0), |extras| extras.attempts);
    end(scheduler, now, Ended { job: id, state, at: now.utc, reason, closed: None, confirmed }, last);
}

/// Removes the timer or the queue entry of a job that waits.
pub(crate) fn leave_queue(scheduler: &mut Scheduler, id: JobId) {
    let Some(job) = scheduler.jobs.get(&id) else { return };
    match job.live_state {
        LiveState::Scheduled => scheduler.timers.clear_wall(job.due_at, WallTimer::Due(id)),
        LiveState::Queued(lane) => {
            let key = job.queue_key(scheduler.config.priority_ageing, id);
            scheduler.ready.remove(lane, key);
            gate::leave_queue(scheduler, lane, id);
        }
        LiveState::Held(_) | LiveState::Quarantined | LiveState::Parent { .. } => {}
    }
}

/// A cancelled job is confirmed if none of its attempts can still run.
fn is_confirmed(scheduler: &Scheduler, id: JobId, state: State) -> bool {
    state != State::Cancelled || !scheduler.jobs.get(&id).is_some_and(Job::has_unconfirmed_attempts)
}

/// Adds a job to its lane. Members are made in place of a parent.
pub(crate) fn queue(scheduler: &mut Scheduler, id: JobId) {
    match scheduler.jobs.get(&id) {
        Some(job) if job.role() == RunOnRole::Parent => return run_on::begin(scheduler, id),
        Some(job) if run_on::is_orphan(scheduler, job) => scheduler.parents.orphan(id),
        _ => {}
    }
    let was_queued =
        scheduler.jobs.get(&id).is_some_and(|job| matches!(job.live_state, LiveState::Queued(_)));
    if let Some((lane, key)) = assign_lane(scheduler, id) {
        scheduler.ready.push(lane, key);
        // One that only changes its lane is counted already.
        if !was_queued {
            gate::enter_queue(scheduler, lane, id);
        }
    }
}

/// Decides the lane and the position that a job waits in.
pub(crate) fn assign_lane(scheduler: &mut Scheduler, id: JobId) -> Option<(LaneKey, QueueKey)> {
    let lane = placement::lane_of(scheduler, id, scheduler.jobs.get(&id)?);
    let job = scheduler.jobs.get_mut(&id)?;
    job.live_state = LiveState::Queued(lane);
    Some((lane, job.queue_key(scheduler.config.priority_ageing, id)))
}

enum NextStep {
    End(State, String),
    Retry(Timestamp),
    Quarantine,
}

fn next_step(
    scheduler: &mut Scheduler,
    now: Now,
    id: JobId,
    attempt: &Attempt,
    definition: &Definition,
    closed: &ClosedAttempt,
    is_gone: bool,
) -> NextStep {
    let outcome = closed.outcome;
    let has_started = attempt.has_started() || closed.started_at.is_some();
    let budget = retry::budget(outcome);
    let under_cancel = attempt.stopping == Some(StopCause::Cancel);
    if outcome == Outcome::Succeeded {
        return NextStep::End(State::Succeeded, String::new());
    }
    if outcome == Outcome::Cancelled || (under_cancel && budget != RetryBudget::Job) {
        let has_too_many_failures =
            scheduler.batches.of(id).is_some_and(|it| it.is_stopped() && it.cancelled_by.is_none());
        let is_stopped = !has_started && has_too_many_failures;
        let reason = match (scheduler.schedules.replaced_by(id), scheduler.unique.successor(id)) {
            _ if is_stopped => MAX_FAILURES_REACHED.into(),
            (Some(job), _) => alloc::format!("cancelled: replaced by job {job} of the next slot"),
            (_, Some(job)) => alloc::format!("cancelled: replaced by job {job} of the same unique key"),
            (None, None) => match &attempt.cancelled_by {
                Some(by) => alloc::format!("cancelled by {by}"),
                None => STOPPED.into(),
            },
        };
        return NextStep::End(State::Cancelled, reason);
    }
    let is_suspect = is_suspect(scheduler, attempt, definition, closed);
    let Some(job) = scheduler.jobs.get_mut(&id) else {
        return NextStep::Quarantine;
    };
    match budget {
        RetryBudget::None if !has_started && job.has_expired(now.utc) => {
            NextStep::End(State::Expired, expire::NOT_STARTED.into())
        }
        RetryBudget::None if is_fenced_off(attempt, definition, outcome) => {
            NextStep::Retry(now.utc + unexpected_delay(definition, 1, &mut scheduler.rng))
        }
        // With its old due time it would be the first job that this worker tries again, and would fail again
        // before all others.
        RetryBudget::None if is_suspect => NextStep::Retry(now.utc),
        // The attempt was not started, so the job keeps its position in the queue.
        RetryBudget::None => NextStep::Retry(job.due_at.min(now.utc)),
        RetryBudget::Job => {
            let extras = job.extras_mut();
            extras.job_failures += 1;
            extras.oom_kills += u32::from(outcome == Outcome::OomKilled);
            let failures = extras.job_failures;
            // A failure under cancel is never retried (docs/design/failures.md, F20).
            if !under_cancel && retry::wants_another(&definition.retry, failures, outcome, closed.exit_code) {
                NextStep::Retry(
                    now.utc + retry::delay(&definition.retry.backoff, failures, &mut scheduler.rng),
                )
            } else {
                NextStep::End(State::Failed, reason_of(closed))
            }
        }
        RetryBudget::Infrastructure
            if outcome == Outcome::Lost && ends_lost(definition.loss.on_lost, is_gone) =>
        {
            NextStep::End(State::Lost, reason_of(closed))
        }
        RetryBudget::Infrastructure => {
            let losses = retry::record_loss(&mut job.extras_mut().losses, closed.ended_at);
            if losses >= definition.loss.limit {
                return NextStep::Quarantine;
            }
            NextStep::Retry(now.utc + unexpected_delay(definition, losses, &mut scheduler.rng))
        }
    }
}

/// A lost attempt ends its job. With `on_lost: wait` that is so if its worker stayed away for `on_lost_timeout`, since the container may run
/// on. A worker that knows nothing of it any more has not kept it, so there may be another attempt.
const fn ends_lost(on_lost: OnLost, is_gone: bool) -> bool {
    match on_lost {
        OnLost::Retry => false,
        OnLost::Fail => true,
        OnLost::Wait => !is_gone,
    }
}

/// The worker stopped the attempt itself because it had lost the server (`self_fence`). On a bad line that
/// happens again and again.
fn is_fenced_off(attempt: &Attempt, definition: &Definition, outcome: Outcome) -> bool {
    outcome == Outcome::Interrupted && attempt.stopping.is_none() && definition.container.self_fence.is_some()
}

/// The runtime was unavailable for this job only, such as for its image's registry or a mount. If the whole
/// runtime were unavailable, the worker would have reported that before.
fn is_suspect(
    scheduler: &Scheduler,
    attempt: &Attempt,
    definition: &Definition,
    closed: &ClosedAttempt,
) -> bool {
    closed.released == Some(ReleaseCause::RuntimeUnavailable)
        && scheduler
            .fleet
            .worker(attempt.worker)
            .is_some_and(|worker| worker.capacity.offers(definition.runtime()))
}

/// Delay before the next attempt after an infrastructure failure.
fn unexpected_delay(definition: &Definition, times: u32, rng: &mut SmallRng) -> Duration {
    definition.loss.delay.unwrap_or_else(|| retry::delay(&retry::INFRASTRUCTURE_BACKOFF, times, rng))
}

/// The reason for a job's end, in one line.
fn reason_of(closed: &ClosedAttempt) -> String {
    match (closed.message.is_empty(), closed.exit_code) {
        (false, _) => closed.message.clone(),
        (true, Some(code)) if closed.outcome == Outcome::Failed => format!("exit code {code}"),
        (true, _) => closed.outcome.name().replace('_', " "),
    }
}

fn quarantine(
    scheduler: &mut Scheduler,
    now: Now,
    id: JobId,
    attempt: &Attempt,
    is_gone: bool,
    closed: ClosedAttempt,
) {
    remember(scheduler, id, attempt, is_gone, closed.outcome);
    if let Some(job) = scheduler.jobs.get_mut(&id) {
        job.live_state = LiveState::Quarantined;
        job.due_at = now.utc;
    }
    scheduler.change(Change::AttemptClosed { job: id, closed, due_at: now.utc, state: State::Quarantined });
    expire::start_quarantine_timeout(scheduler, id, now.utc);
}

fn remember(scheduler: &mut Scheduler, id: JobId, attempt: &Attempt, is_gone: bool, outcome: Outcome) {
    if !is_gone {
        unconfirmed::add_unconfirmed(scheduler, id, attempt);
    }
    if let Some(job) = scheduler.jobs.get_mut(&id) {
        let extras = job.extras_mut();
        extras.attempts = attempt.number;
        extras.last = LastPlacement::after(attempt.worker, outcome).or(extras.last);
    }
}

fn wait(scheduler: &mut Scheduler, now: Now, id: JobId, due_at: Timestamp, closed: ClosedAttempt) {
    let Some(job) = scheduler.jobs.get_mut(&id) else {
        return;
    };
    job.due_at = due_at;
    let state = if due_at > now.utc {
        job.live_state = LiveState::Scheduled;
        scheduler.timers.set_wall(due_at, WallTimer::Due(id));
        State::Scheduled
    } else {
        queue(scheduler, id);
        State::Queued
    };
    scheduler.change(Change::AttemptClosed { job: id, closed, due_at, state });
}

/// Removes the attempt from its worker and clears its timers.
fn take_attempt(scheduler: &mut Scheduler, id: JobId) -> Option<Attempt> {
    let job = scheduler.jobs.get_mut(&id)?;
    let key = job.queue_key(scheduler.config.priority_ageing, id);
    job.attempt()?;
    let LiveState::Held(attempt) = core::mem::replace(&mut job.live_state, LiveState::Scheduled) else {
        return None;
    };
    if attempt.is_prefetched() {
        scheduler.fleet.leave_backlog(attempt.worker, key);
    }
    scheduler.fleet.remove_attempt(attempt.worker, attempt.token(id));
    scheduler.phases.remove(&id);
    if let Some(at) = attempt.run().and_then(|run| run.overrun_at) {
        scheduler.timers.clear_uptime(at, UptimeTimer::Overrun(id, attempt.fence));
    }
    if let Some(at) = attempt.run().and_then(|run| run.slow_at) {
        scheduler.timers.clear_uptime(at, UptimeTimer::Slow(id, attempt.fence));
    }
    if let Some(at) = attempt.loss_at {
        scheduler.timers.clear_uptime(at, UptimeTimer::Loss(id, attempt.fence));
    }
    if let Some(awaited) = attempt.awaited_report() {
        scheduler.timers.clear_uptime(awaited.due_at, UptimeTimer::AwaitedReport(id, attempt.fence));
    }
    gate::release_permits(scheduler, id);
    Some(*attempt)
}

/// Removes an ended job from memory. The change is its only record. `last` is its last attempt, zero if it had none.
fn end(scheduler: &mut Scheduler, now: Now, ended: Ended, last: AttemptNo) {
    let (id, state) = (ended.job, ended.state);
    hook::ends(scheduler, &ended, last);
    expire::clear(scheduler, id);
    let parent = scheduler.parent_of(id);
    scheduler.parents.remove(id);
    if ended.confirmed {
        unconfirmed::drop_all(scheduler, id);
    } else {
        unconfirmed::keep_after_end(scheduler, id);
    }
    let definition = scheduler.jobs.get(&id).map(|job| job.definition);
    if let Some(definition) = definition {
        unique::ended(scheduler, id, definition, state);
    }
    if let Some(job) = scheduler.jobs.remove(&id) {
        let key_set = placement::key_set_of(scheduler, &job);
        gate::forget_job(scheduler, (job.definition, key_set), now);
        scheduler.definitions.drop_reference(job.definition);
    }
    if let Some(next) = scheduler.schedules.remove_job(id) {
        due::set_timer(scheduler, next);
    }
    scheduler.change(Change::Ended(ended));
    dependency::ended(scheduler, id, state);
    batch::member_ended(scheduler, now, id, state);
    if let Some(parent) = parent {
        run_on::member_ended(scheduler, now, parent, id, state);
    }
    scheduler.effect(Effect::JobEnded(id, state));
}

/// A scheduled job waits for the end of another one: of one that it comes after, that it replaces, or that its schedule made earlier.
pub(crate) fn waits_for_another(scheduler: &Scheduler, id: JobId) -> bool {
    scheduler.dependencies.must_wait(id)
        || scheduler.unique.must_wait(id)
        || scheduler.schedules.must_wait(id)
}
