//! A worker has told everything that it knows: its attempts are compared with ours (the table of FAULTS.md R14).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::{Cancel, Reconciled, Verdict};
use protocol::report::{Availability, Inventory, Outcome, OutputLengths, Phase};
use protocol::{Fence, JobId, Now, Order, RuntimeKind, SessionId, Token, WorkerId};

use crate::fleet::Link;
use crate::job::Job;
use crate::on::close;
use crate::scheduler::{Scheduler, timeout_of};
use crate::step::{Change, ClosedAttempt, Grant, Note};
use crate::timers::Alarm;

pub(crate) fn inventory(it: &mut Scheduler, now: Now, id: WorkerId, part: Inventory) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    // A second inventory on a settled session says nothing that reports do not.
    let Link::Joining(session, known) = &mut worker.link else {
        return;
    };
    known.extend(part.attempts);
    if !part.last {
        return;
    }
    let (session, known) = (*session, core::mem::take(known));
    worker.runtimes.clone_from(&part.runtimes);
    worker.link = Link::Ready(session);
    revive(it, now, id);
    let attempts = known.iter().map(|(token, phase)| (*token, judge(it, id, *token, *phase))).collect();
    it.send(session, Order::Reconciled(Reconciled { attempts, last: true }));
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
        let (stopping, started) = (attempt.stopping, attempt.started_at.is_some());
        if known.contains_key(&(job, token.fence)) {
            if let Some(cause) = stopping {
                it.send(session, Order::Cancel(Cancel { token, grace: None, cause }));
            }
        } else if silent.contains(&definition.runtime()) {
            // Nothing can be concluded from the absence in a list that is not complete.
        } else if started {
            let closed = gone(now, token, attempt.started_at, "its worker came back without it");
            close::close(it, now, job, closed);
        } else if stopping.is_some() {
            let closed = ClosedAttempt {
                outcome: Outcome::Cancelled,
                ..gone(now, token, None, "stopped before it started")
            };
            close::close(it, now, job, closed);
        } else {
            enqueue_again(it, job, session);
        }
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
