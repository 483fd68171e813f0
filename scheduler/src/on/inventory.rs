//! A worker has told everything that it knows: its attempts are compared with ours (the table of FAULTS.md R14).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Cancel, Configure, Reconciled, Verdict};
use protocol::report::{Availability, Inventory, Outcome, OutputLengths, Phase};
use protocol::{Fence, JobId, Now, Order, RuntimeKind, SessionId, Token, WorkerId};

use crate::fleet::Link;
use crate::job::Job;
use crate::on::close;
use crate::scheduler::{Scheduler, timeout_of};
use crate::step::{Change, CloseReason, ClosedAttempt, Effect, Grant, Note};
use crate::timers::Alarm;

/// How many attempts an inventory may list: ten times what a worker may hold.
const ENTRIES_MAX: usize = 200_000;

pub(crate) fn inventory(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, part: Inventory) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    worker.inventory.extend(part.attempts);
    if worker.inventory.len() > ENTRIES_MAX {
        worker.inventory.clear();
        it.effect(Effect::Close(session, CloseReason::Protocol));
        return;
    }
    if !part.last {
        return;
    }
    let known = core::mem::take(&mut worker.inventory);
    worker.runtimes.clone_from(&part.runtimes);
    worker.link = Link::Ready(session);
    let (slots, drain) = (worker.row.slots, worker.draining);
    revive(it, now, id);
    let attempts = known.iter().map(|(token, phase)| (*token, judge(it, id, *token, *phase))).collect();
    it.send(session, Order::Reconciled(Reconciled { attempts, last: true }));
    if slots.is_some() || drain {
        // What an operator has ordered survives a reconnect.
        it.send(session, Order::Configure(Configure { slots, drain, intervals: None }));
    }
    settle(it, now, id, session, &known, &part.runtimes);
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
    let above_counter = token.fence > it.last.fence;
    if it.held(token, id).is_some() || phase == Phase::Ended || above_counter {
        // What has ended is removed by its worker once report and output are acknowledged. A fence that we never gave comes from
        // a later life of our database: nothing is stopped on the word of a database that went back in time.
        Verdict::Keep
    } else {
        Verdict::Stop
    }
}

/// Looks at the attempts that we think this worker has.
fn settle(
    it: &mut Scheduler,
    now: Now,
    id: WorkerId,
    session: SessionId,
    known: &[(Token, Phase)],
    runtimes: &[(RuntimeKind, Availability)],
) {
    let known: BTreeMap<(JobId, Fence), Phase> =
        known.iter().map(|(token, phase)| ((token.job, token.fence), *phase)).collect();
    let silent: BTreeSet<RuntimeKind> =
        runtimes.iter().filter(|(_, answer)| !answer.is_available()).map(|(kind, _)| *kind).collect();
    let held: Vec<JobId> =
        it.fleet.worker(id).map(|worker| worker.held.iter().copied().collect()).unwrap_or_default();
    for job in held {
        let Some(live) = it.jobs.get(&job) else {
            continue;
        };
        let (Some(attempt), Some(definition)) = (live.attempt(), it.definition(live)) else {
            continue;
        };
        let token = attempt.token(job);
        if let Some(phase) = known.get(&(job, token.fence)) {
            found(it, id, job, *phase, session);
        } else if !silent.contains(&definition.runtime()) {
            absent(it, now, job, session);
        } else if let Some(attempt) = it.jobs.get_mut(&job).and_then(Job::attempt_mut) {
            // Nothing can be concluded from the absence in a list that is not complete.
            attempt.unsettled = true;
        }
    }
}

/// A runtime answers again. What never started there and was missing while it was silent goes out again: the worker says so if it has
/// it after all. What had started is left alone until the worker tells its end or comes with a complete inventory.
pub(crate) fn settle_again(it: &mut Scheduler, id: WorkerId, session: SessionId) {
    let Some(worker) = it.fleet.worker(id) else { return };
    let held: Vec<JobId> = worker.held.iter().copied().collect();
    for job in held {
        let Some(live) = it.jobs.get(&job) else { continue };
        let (Some(attempt), Some(definition)) = (live.attempt(), it.definition(live)) else { continue };
        let answers = it.fleet.worker(id).is_some_and(|worker| worker.offers(definition.runtime()));
        if attempt.unsettled && attempt.started_at.is_none() && answers {
            enqueue_again(it, job, session);
        }
    }
}

/// The worker has this attempt: what we know of it is brought up to date with where it stands there.
fn found(it: &mut Scheduler, id: WorkerId, job: JobId, phase: Phase, session: SessionId) {
    let Some(live) = it.jobs.get_mut(&job) else { return };
    let place = live.place(job);
    let Some(attempt) = live.attempt_mut() else { return };
    let token = attempt.token(job);
    attempt.recalled = false;
    attempt.unsettled = false;
    attempt.prefetched = phase == Phase::Backlog && attempt.started_at.is_none();
    let (prefetched, stopping) = (attempt.prefetched, attempt.stopping);
    if prefetched {
        it.fleet.prefetch(id, place);
    } else {
        it.fleet.fetch(id, place);
    }
    if let Some(cause) = stopping {
        it.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
    }
}

/// The worker does not have this attempt, and it would know: never started, the same token goes out again; started, it is lost.
pub(crate) fn absent(it: &mut Scheduler, now: Now, job: JobId, session: SessionId) {
    let Some(attempt) = it.jobs.get(&job).and_then(Job::attempt) else { return };
    let (token, started_at) = (attempt.token(job), attempt.started_at);
    if started_at.is_some() {
        close::close(it, now, job, gone(now, token, started_at, "its worker does not know of it any more"));
    } else if attempt.stopping.is_some() {
        let closed = ClosedAttempt {
            outcome: Outcome::Cancelled,
            ..gone(now, token, None, "stopped before it started")
        };
        close::close(it, now, job, closed);
    } else {
        enqueue_again(it, job, session);
    }
}

/// The same token once more: its Enqueue was lost on the way.
fn enqueue_again(it: &mut Scheduler, id: JobId, session: SessionId) {
    let Some(job) = it.jobs.get_mut(&id) else {
        return;
    };
    let (number, priority, due_at, has_body) = (job.definition, job.priority, job.due_at, job.has_body);
    let Some(attempt) = job.attempt_mut() else {
        return;
    };
    attempt.recalled = false;
    attempt.unsettled = false;
    let (token, worker) = (attempt.token(id), attempt.worker);
    let Some(definition) = it.definitions.at(number).cloned() else {
        return;
    };
    let time_left = it.jobs.get(&id).and_then(|job| timeout_of(job, &definition));
    it.tell(worker, session, number);
    it.grant(session, Grant { token, priority, due_at, revision: definition.revision, has_body, time_left });
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
