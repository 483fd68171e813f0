//! A worker has told everything that it knows: its attempts are compared with ours (the table of FAULTS.md R14).
//!
//! The first inventory of a session is about all that the worker had before it. A further one comes when a runtime answers again that
//! had been silent: by then attempts may be on their way to the worker that it could not know when it wrote, so only what the first one
//! left open is concluded from it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Cancel, Configure, Reconciled, StopCause, Verdict};
use protocol::report::{Inventory, Outcome, OutputLengths, Phase};
use protocol::{JobId, Now, Order, RuntimeKind, SessionId, Token, WorkerId};

use crate::fleet::Link;
use crate::job::Job;
use crate::on::{close, confirm, define, foreign, report, strangers};
use crate::place;
use crate::scheduler::Scheduler;
use crate::step::{Change, CloseReason, ClosedAttempt, Effect, Note};
use crate::timers::Alarm;

/// How many attempts an inventory may list: ten times what a worker may hold.
const ENTRIES_MAX: usize = 200_000;

pub(crate) fn inventory(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, part: Inventory) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    worker.inventory.extend(part.attempts);
    if worker.inventory.len() > ENTRIES_MAX {
        worker.inventory.clear();
        worker.strangers.clear();
        it.effect(Effect::Close(session, CloseReason::Protocol));
        return;
    }
    foreign::foreign(it, session, &part.foreign);
    if !part.last {
        return;
    }
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let known = core::mem::take(&mut worker.inventory);
    worker.runtimes.clone_from(&part.runtimes);
    worker.lift_exclusions();
    let is_first = matches!(worker.link, Link::Joining(_));
    worker.link = Link::Ready(session);
    let (settings, leaving) = (worker.settings(), worker.leaving);
    revive(it, now, id);
    strangers::meet(it, now, id, &known);
    let attempts = known.iter().map(|(token, phase)| (*token, judge(it, id, *token, *phase))).collect();
    if is_first && (settings != Configure::default() || leaving) {
        // What an operator has ordered survives a reconnect, and so does what was taken back meanwhile.
        it.send(session, Order::Configure(settings));
    }
    define::keep_pace(it, id);
    let complete = part.runtimes.iter().filter(|(_, answer)| answer.is_available()).map(|(kind, _)| *kind);
    let (known, complete) = (known.into_iter().collect(), complete.collect());
    let told = Told { session, is_first, known, complete };
    settle(it, now, id, &told);
    // From this word on the worker starts things: what is to be stopped or given back it has heard before.
    it.send(session, Order::Reconciled(Reconciled { attempts, last: true }));
    confirm::listed(it, now, id, &told);
    it.fleet.refresh(id);
    it.fleet.note_growth();
    it.changed = true;
}

/// The worker is back: what was about to be given up stays with it.
fn revive(it: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    if !core::mem::take(&mut worker.unreachable) {
        return;
    }
    let held: Vec<JobId> = worker.held.iter().copied().collect();
    for job in held {
        let Some(attempt) = it.jobs.get_mut(&job).and_then(Job::attempt_mut) else {
            continue;
        };
        let token = attempt.token(job);
        if let Some(at) = attempt.loss_at.take() {
            it.timers.clear_alarm(at, Alarm::Loss(job, token.fence));
        }
        it.change(Change::Noted { job, at: now.utc, note: Note::Revived { token, worker: id } });
    }
}

fn judge(it: &mut Scheduler, id: WorkerId, token: Token, phase: Phase) -> Verdict {
    let is_ours = it.held(token, id).is_some();
    let is_kept_stranger = strangers::may_be(it, id, token) && !strangers::is_idle_rival(it, token, phase);
    if is_ours || phase == Phase::Ended || is_kept_stranger {
        // What has ended is removed by its worker once report and output are acknowledged.
        Verdict::Keep
    } else {
        Verdict::Stop
    }
}

/// What a worker has told.
pub(crate) struct Told {
    pub(crate) session: SessionId,
    pub(crate) is_first: bool,
    pub(crate) known: BTreeMap<Token, Phase>,
    /// Runtimes whose part of the list is complete. One that the worker no longer offers tells nothing about what it once ran.
    pub(crate) complete: BTreeSet<RuntimeKind>,
}

/// Looks at the attempts that we think this worker has.
fn settle(it: &mut Scheduler, now: Now, id: WorkerId, told: &Told) {
    let held: Vec<JobId> =
        it.fleet.worker(id).map(|worker| worker.held.iter().copied().collect()).unwrap_or_default();
    for job in held {
        let Some(live) = it.jobs.get(&job) else {
            continue;
        };
        let (Some(attempt), Some(definition)) = (live.attempt(), it.definition(live)) else {
            continue;
        };
        if !told.is_first && !attempt.unsettled {
            continue;
        }
        if let Some(phase) = told.known.get(&attempt.token(job)) {
            found(it, now, id, job, *phase, told.session);
        } else if told.complete.contains(&definition.runtime()) {
            absent(it, now, job, told.session);
        } else if let Some(attempt) = it.jobs.get_mut(&job).and_then(Job::attempt_mut) {
            // Nothing can be concluded from the absence in a list that is not complete.
            attempt.unsettled = true;
        }
    }
}

/// The worker has this attempt: what we know of it is brought up to date with where it stands there.
fn found(it: &mut Scheduler, now: Now, id: WorkerId, job: JobId, phase: Phase, session: SessionId) {
    let Some(live) = it.jobs.get_mut(&job) else { return };
    let place = live.place(job);
    let Some(attempt) = live.attempt_mut() else { return };
    let token = attempt.token(job);
    attempt.recalled = false;
    attempt.unsettled = false;
    attempt.may_run |= phase != Phase::Backlog;
    attempt.begun |= is_begun(phase);
    attempt.prefetched = phase == Phase::Backlog && attempt.started_at.is_none();
    let (prefetched, stopping) = (attempt.prefetched, attempt.stopping);
    if attempt.is_unwatched() {
        // Its worker was to say since when it runs, before its inventory, and has not: from now on at the latest.
        report::watch_overrun(it, now, token, Duration::ZERO);
    }
    if prefetched {
        it.fleet.prefetch(id, place);
    } else {
        it.fleet.fetch(id, place);
    }
    if let Some(cause) = stopping {
        it.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    }
}

/// Whether a worker that says this may have started the container.
pub(crate) const fn is_begun(phase: Phase) -> bool {
    matches!(phase, Phase::Starting | Phase::Running)
}

/// The worker does not have this attempt, and it would know: never begun, the same token goes out again; else it is lost.
pub(crate) fn absent(it: &mut Scheduler, now: Now, job: JobId, session: SessionId) {
    let Some(attempt) = it.jobs.get(&job).and_then(Job::attempt) else { return };
    let (token, started_at) = (attempt.token(job), attempt.started_at);
    if started_at.is_some() || (attempt.begun && attempt.stopping.is_none()) {
        close::close(it, now, job, gone(now, token, started_at, "its worker does not know of it any more"));
    } else if attempt.stopping.is_some() {
        let outcome = match attempt.stopping {
            Some(StopCause::Cancel) => Outcome::Cancelled,
            _ => Outcome::Interrupted,
        };
        let closed = ClosedAttempt { outcome, ..gone(now, token, None, "stopped before it started") };
        close::close(it, now, job, closed);
    } else {
        enqueue_again(it, now, job, session);
    }
}

/// The same token once more: its Enqueue was lost on the way.
fn enqueue_again(it: &mut Scheduler, now: Now, id: JobId, session: SessionId) {
    let Some(job) = it.jobs.get_mut(&id) else {
        return;
    };
    let number = job.definition;
    let Some(attempt) = job.attempt_mut() else {
        return;
    };
    attempt.recalled = false;
    attempt.unsettled = false;
    // It has not sat there yet: a recall now would overtake it.
    attempt.assigned_up = now.up;
    attempt.session = Some(session);
    let (token, worker) = (attempt.token(id), attempt.worker);
    let Some(definition) = it.definitions.at(number).cloned() else {
        return;
    };
    let grant = place::grant_of(job, token, &definition);
    it.tell(worker, session, number);
    it.grant(session, grant);
}

/// The end of an attempt that nobody can report about any more.
pub(crate) fn gone(
    now: Now,
    token: Token,
    started_at: Option<protocol::Timestamp>,
    message: &str,
) -> ClosedAttempt {
    ClosedAttempt {
        token,
        outcome: Outcome::Lost,
        exit_code: None,
        message: String::from(message),
        started_at,
        ended_at: now.utc,
        output: OutputLengths::default(),
        result: None,
        released: None,
    }
}
