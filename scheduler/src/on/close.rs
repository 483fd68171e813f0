//! The end of an attempt, and what it means for its job: another attempt, or the end.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Outcome, ReleaseCause};
use protocol::{JobId, Now, Timestamp};
use rand::rngs::SmallRng;

use crate::definition::{Definition, OnLost};
use crate::job::{Attempt, Job, Standing, State, Stay};
use crate::on::confirm;
use crate::place;
use crate::retry::{self, Budget};
use crate::scheduler::Scheduler;
use crate::step::{Change, ClosedAttempt, Effect, Ended, Note};
use crate::timers::{Alarm, Date};

/// Closes the current attempt of a job, whose container is gone, and decides what becomes of the job.
pub(crate) fn close(it: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    close_as(it, now, id, closed, true);
}

/// The same with an attempt that is not waited for any longer: its container may still be there.
pub(crate) fn lose(it: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    close_as(it, now, id, closed, false);
}

fn close_as(it: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt, is_gone: bool) {
    let Some(attempt) = take_attempt(it, id) else {
        return;
    };
    let Some(definition) = it.jobs.get(&id).and_then(|job| it.definition(job)) else {
        return;
    };
    let token = closed.token;
    let is_told_gone = is_gone && closed.outcome == Outcome::Lost;
    let is_settled = match verdict(it, now, id, &attempt, &definition, &closed) {
        Verdict::End(state, reason) => {
            if !is_gone && state == State::Cancelled {
                confirm::doubt(it, id, &attempt);
            }
            let confirmed = is_confirmed(it, id, state);
            end(it, Ended { job: id, state, at: now.utc, reason, closed: Some(closed), confirmed });
            confirmed
        }
        Verdict::Again(due_at) => {
            remember(it, id, &attempt, is_gone, closed.outcome);
            wait(it, now, id, due_at, closed);
            false
        }
        Verdict::Hold => {
            hold_back(it, now, id, &attempt, is_gone, closed);
            false
        }
    };
    if is_told_gone && !is_settled {
        // A start of the server takes what is lost for what may run on, unless somebody has told otherwise.
        let note = Note::Confirmed { token, worker: attempt.worker };
        it.change(Change::Noted { job: id, at: now.utc, note });
    }
}

/// Closes the current attempt of a job because a person said so. A cancelled job ends with it; any other is held back, whatever its
/// definition says: the person decides how it goes on.
pub(crate) fn give_up(it: &mut Scheduler, now: Now, id: JobId, closed: ClosedAttempt) {
    let is_cancelled = |attempt: &Attempt| attempt.stopping == Some(StopCause::Cancel);
    if it.jobs.get(&id).and_then(Job::attempt).is_some_and(is_cancelled) {
        lose(it, now, id, closed);
    } else if let Some(attempt) = take_attempt(it, id) {
        hold_back(it, now, id, &attempt, false, closed);
    }
}

/// Ends a job that has no attempt. Those that it had may have been given up, and their containers be there.
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
    let confirmed = is_confirmed(it, id, state);
    end(it, Ended { job: id, state, at: now.utc, reason, closed: None, confirmed });
}

/// Cancelled means that nothing of it runs: neither its last attempt nor any before that.
fn is_confirmed(it: &Scheduler, id: JobId, state: State) -> bool {
    state != State::Cancelled || !it.jobs.get(&id).is_some_and(Job::is_doubted)
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
    let is_suspect = is_suspect(it, attempt, definition, closed);
    let Some(job) = it.jobs.get_mut(&id) else {
        return Verdict::Hold;
    };
    match budget {
        Budget::Free if is_fenced_off(attempt, definition, outcome) => {
            Verdict::Again(now.utc + unexpected_delay(definition, 1, &mut it.rng))
        }
        // It would be the first that its worker tries again, and the first to fail so again, before everybody whom nothing ails.
        Budget::Free if is_suspect => Verdict::Again(now.utc),
        // What costs it nothing does not cost it its place either.
        Budget::Free => Verdict::Again(job.due_at.min(now.utc)),
        Budget::Own => {
            let past = job.past_mut();
            past.own_failures += 1;
            past.oom_kills += u32::from(outcome == Outcome::OomKilled);
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
            let losses = retry::note_loss(&mut job.past_mut().losses, closed.ended_at);
            if losses >= definition.loss.limit {
                return Verdict::Hold;
            }
            Verdict::Again(now.utc + unexpected_delay(definition, losses, &mut it.rng))
        }
    }
}

/// Whether its worker stopped it without being told, as it must where it has lost the server: on a bad line that happens again and again.
fn is_fenced_off(attempt: &Attempt, definition: &Definition, outcome: Outcome) -> bool {
    outcome == Outcome::Interrupted && attempt.stopping.is_none() && definition.container.self_fence.is_some()
}

/// Whether its runtime was out of reach for this job alone: for its image's registry, say, or what it mounts. Where the whole runtime is
/// away, its worker has said so before.
fn is_suspect(it: &Scheduler, attempt: &Attempt, definition: &Definition, closed: &ClosedAttempt) -> bool {
    closed.released == Some(ReleaseCause::RuntimeUnavailable)
        && it.fleet.worker(attempt.worker).is_some_and(|worker| worker.offers(definition.runtime()))
}

/// How long the next attempt waits after something that the job has no part in.
fn unexpected_delay(definition: &Definition, times: u32, rng: &mut SmallRng) -> Duration {
    definition.loss.delay.unwrap_or_else(|| retry::delay(&retry::PLATFORM_BACKOFF, times, rng))
}

/// Why a job ended so, in one line.
fn reason_of(closed: &ClosedAttempt) -> String {
    match (closed.message.is_empty(), closed.exit_code) {
        (false, _) => closed.message.clone(),
        (true, Some(code)) if closed.outcome == Outcome::Failed => format!("exit code {code}"),
        (true, _) => closed.outcome.name().replace('_', " "),
    }
}

fn hold_back(
    it: &mut Scheduler,
    now: Now,
    id: JobId,
    attempt: &Attempt,
    is_gone: bool,
    closed: ClosedAttempt,
) {
    remember(it, id, attempt, is_gone, closed.outcome);
    if let Some(job) = it.jobs.get_mut(&id) {
        job.standing = Standing::Quarantined;
        job.due_at = now.utc;
    }
    it.change(Change::Waiting { job: id, closed, due_at: now.utc, state: State::Quarantined });
}

fn remember(it: &mut Scheduler, id: JobId, attempt: &Attempt, is_gone: bool, outcome: Outcome) {
    if !is_gone {
        confirm::doubt(it, id, attempt);
    }
    if let Some(job) = it.jobs.get_mut(&id) {
        let past = job.past_mut();
        past.attempts = attempt.number;
        past.last = Stay::after(attempt.worker, outcome).or(past.last);
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
fn end(it: &mut Scheduler, ended: Ended) {
    let (id, state) = (ended.job, ended.state);
    if ended.confirmed {
        confirm::forget(it, id);
    } else {
        confirm::leave(it, id);
    }
    if let Some(job) = it.jobs.remove(&id) {
        it.definitions.drop_one(job.definition);
    }
    it.change(Change::Ended(ended));
    it.effect(Effect::JobEnded(id, state));
}
