//! The end of an attempt, and what it means for its job: another attempt, or the end.

use alloc::format;
use alloc::string::String;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{JobId, Now, Timestamp};

use crate::definition::{Definition, OnLost};
use crate::job::{Attempt, Job, Standing, State};
use crate::place;
use crate::retry::{self, Budget};
use crate::scheduler::Scheduler;
use crate::step::{Change, ClosedAttempt, Effect, Ended};
use crate::timers::{Alarm, Date};

/// Closes the current attempt of a job and decides what becomes of the job.
pub(crate) fn close(it: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    let Some(attempt) = take_attempt(it, id) else {
        return;
    };
    let Some(definition) = it.jobs.get(&id).and_then(|job| it.definition(job)) else {
        return;
    };
    match verdict(it, now, id, &attempt, &definition, &closed) {
        Verdict::End(state, reason) => end(it, now, id, state, reason, Some(closed)),
        Verdict::Again(due_at) => {
            remember(it, id, &attempt);
            wait(it, now, id, due_at, closed);
        }
        Verdict::Hold => {
            remember(it, id, &attempt);
            if let Some(job) = it.jobs.get_mut(&id) {
                job.standing = Standing::Quarantined;
            }
            it.change(Change::Waiting { job: id, closed, due_at: now.utc, state: State::Quarantined });
        }
    }
}

/// Ends a job that has no attempt.
pub(crate) fn end_unheld(it: &mut Scheduler, now: Now, id: JobId, state: State, reason: String) {
    if let Some(job) = it.jobs.get(&id) {
        match job.standing {
            Standing::Scheduled => it.timers.clear_date(job.due_at, Date::Due(id)),
            Standing::Queued(lane) => {
                let place = job.place(id);
                it.ready.remove(lane, place);
            }
            Standing::Held(_) | Standing::Quarantined => {}
        }
    }
    end(it, now, id, state, reason, None);
}

/// Lets a job wait for a slot.
pub(crate) fn queue(it: &mut Scheduler, id: JobId) {
    let Some(lane) = it.jobs.get(&id).map(|job| place::lane_of(it, job)) else {
        return;
    };
    if let Some(job) = it.jobs.get_mut(&id) {
        job.standing = Standing::Queued(lane);
        it.ready.push(lane, job.place(id));
    }
}

enum Verdict {
    End(State, String),
    Again(Timestamp),
    Hold,
}

fn verdict(
    it: &mut Scheduler,
    now: Now,
    id: JobId,
    attempt: &Attempt,
    definition: &Definition,
    closed: &ClosedAttempt,
) -> Verdict {
    let outcome = closed.outcome;
    let budget = retry::budget(outcome);
    let under_cancel = attempt.stopping == Some(StopCause::Cancel);
    if outcome == Outcome::Succeeded {
        return Verdict::End(State::Succeeded, String::new());
    }
    if outcome == Outcome::Cancelled || (under_cancel && budget != Budget::Own) {
        return Verdict::End(State::Cancelled, "cancelled".into());
    }
    let Some(job) = it.jobs.get_mut(&id) else {
        return Verdict::Hold;
    };
    match budget {
        Budget::Free => Verdict::Again(now.utc),
        Budget::Own => {
            let past = job.past_mut();
            past.own_failures += 1;
            let failures = past.own_failures;
            // A failure under cancel is never tried again (FAULTS.md F20).
            if !under_cancel && retry::wants_another(&definition.retry, failures, outcome, closed.exit_code) {
                Verdict::Again(now.utc + retry::delay(&definition.retry.backoff, failures, &mut it.rng))
            } else {
                Verdict::End(State::Failed, reason_of(closed))
            }
        }
        Budget::Platform if outcome == Outcome::Lost && definition.loss.on_lost == OnLost::Fail => {
            Verdict::End(State::Lost, reason_of(closed))
        }
        Budget::Platform => {
            let losses = note_loss(job, now);
            if losses >= definition.loss.limit {
                return Verdict::Hold;
            }
            Verdict::Again(now.utc + retry::delay(&retry::PLATFORM_BACKOFF, losses, &mut it.rng))
        }
    }
}

/// Counts a loss; returns how many there were within the window.
fn note_loss(job: &mut Job, now: Now) -> u32 {
    let past = job.past_mut();
    past.losses.retain(|at| now.utc.since(*at) < retry::LOSS_WINDOW);
    past.losses.push(now.utc);
    u32::try_from(past.losses.len()).unwrap_or(u32::MAX)
}

/// Why a job ended so, in one line.
fn reason_of(closed: &ClosedAttempt) -> String {
    match (closed.message.is_empty(), closed.exit_code) {
        (false, _) => closed.message.clone(),
        (true, Some(code)) if closed.outcome == Outcome::Failed => format!("exit code {code}"),
        (true, _) => closed.outcome.name().replace('_', " "),
    }
}

fn remember(it: &mut Scheduler, id: JobId, attempt: &Attempt) {
    if let Some(job) = it.jobs.get_mut(&id) {
        let past = job.past_mut();
        past.attempts = attempt.number;
        past.last_worker = Some(attempt.worker);
    }
}

fn wait(it: &mut Scheduler, now: Now, id: JobId, due_at: Timestamp, closed: ClosedAttempt) {
    let Some(job) = it.jobs.get_mut(&id) else {
        return;
    };
    job.due_at = due_at;
    let state = if due_at > now.utc {
        job.standing = Standing::Scheduled;
        it.timers.set_date(due_at, Date::Due(id));
        State::Scheduled
    } else {
        queue(it, id);
        State::Queued
    };
    it.change(Change::Waiting { job: id, closed, due_at, state });
}

/// Takes the attempt off its worker and out of all timers.
fn take_attempt(it: &mut Scheduler, id: JobId) -> Option<Attempt> {
    let job = it.jobs.get_mut(&id)?;
    let place = job.place(id);
    job.attempt()?;
    let Standing::Held(attempt) = core::mem::replace(&mut job.standing, Standing::Scheduled) else {
        return None;
    };
    if attempt.prefetched {
        it.fleet.fetch(attempt.worker, place);
    }
    it.fleet.let_go(attempt.worker, id);
    it.phases.remove(&id);
    if let Some(at) = attempt.overrun_at {
        it.timers.clear_alarm(at, Alarm::Overrun(id, attempt.fence));
    }
    if let Some(at) = attempt.loss_at {
        it.timers.clear_alarm(at, Alarm::Loss(id, attempt.fence));
    }
    Some(*attempt)
}

/// Ended jobs leave the brain at once: this change is what remembers them.
fn end(it: &mut Scheduler, now: Now, id: JobId, state: State, reason: String, closed: Option<ClosedAttempt>) {
    if let Some(job) = it.jobs.remove(&id) {
        it.definitions.drop_one(job.definition);
    }
    // An attempt that was given up may still have a container: the cancel is not confirmed (DESIGN.md section 3).
    let given_up = closed.as_ref().is_some_and(|closed| closed.outcome == Outcome::Lost);
    let confirmed = !(state == State::Cancelled && given_up);
    it.change(Change::Ended(Ended { job: id, state, at: now.utc, reason, closed, confirmed }));
    it.effect(Effect::JobEnded(id, state));
}
