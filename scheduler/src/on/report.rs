//! A worker says something. Only the bearer of a current token is believed; everybody is acknowledged once what they said is durable.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use protocol::order::{Cancel, StopCause};
use protocol::report::{
    Condition, Failed, Heartbeat, Numbered, Outcome, OutputLengths, Phase, ReleaseCause, Released, Started,
    Succeeded, Timing,
};
use protocol::{Now, Order, Report, ReportNo, Revision, SessionId, Timestamp, Token, WorkerId};

use crate::definition::Definition;
use crate::exclusion::{Excluded, Sentence};
use crate::on::{claim, close, confirm, connect, foreign, inventory, strangers};
use crate::scheduler::Scheduler;
use crate::step::{Change, CloseReason, ClosedAttempt, Effect, Note};
use crate::timers::Alarm;

pub(crate) fn report(it: &mut Scheduler, now: Now, session: SessionId, report: Report) {
    // Frames of an older session are dropped.
    let Some(id) = it.fleet.by_session(session) else {
        claim::heard(it, session, now.up);
        return;
    };
    connect::spoke(it, id, now.up);
    match report {
        Report::Running(list) => {
            numbered(it, session, id, list, |it, started| running(it, now, session, id, started))
        }
        Report::Success(list) => numbered(it, session, id, list, |it, ended| succeeded(it, now, id, ended)),
        Report::Failure(list) => numbered(it, session, id, list, |it, ended| failed(it, now, id, ended)),
        Report::Released(list) => {
            numbered(it, session, id, list, |it, released| given_back(it, now, id, released))
        }
        Report::Starting(list) => {
            numbered(it, session, id, list, |it, token| starting(it, now, session, id, token))
        }
        Report::Inventory(part) => inventory::inventory(it, now, session, id, part),
        Report::Heartbeat(beat) => heartbeat(it, now, session, id, beat),
        Report::Progress(list) | Report::Status(list) => {
            for (token, phase) in list {
                progress(it, now, session, id, token, phase);
            }
        }
        Report::Condition(condition) => changed(it, id, condition),
        Report::Foreign(found) => foreign::foreign(it, session, &found),
        Report::Wanted(revisions) => wanted(it, id, session, &revisions),
        // Output goes from session to session and never passes here; a second Hello makes no sense.
        Report::Output(_) => {}
        Report::Hello(_) => it.effect(Effect::Close(session, CloseReason::Protocol)),
    }
}

/// Takes in the entries that are new, and acknowledges all of them. Numbers of one incarnation have no gaps.
fn numbered<T>(
    it: &mut Scheduler,
    session: SessionId,
    id: WorkerId,
    list: Numbered<T>,
    mut take: impl FnMut(&mut Scheduler, T),
) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    // After a start of the server the first report of a session tells where its worker is.
    let last = worker.last_report.unwrap_or(ReportNo(list.first.0.saturating_sub(1)));
    if list.first > last.next() || list.first == ReportNo(0) {
        it.effect(Effect::Close(session, CloseReason::Protocol));
        return;
    }
    let up_to = list.last().max(last);
    worker.last_report = Some(up_to);
    let known = usize::try_from(last.0 + 1 - list.first.0).unwrap_or(usize::MAX);
    for entry in list.list.into_iter().skip(known) {
        take(it, entry);
    }
    it.send(session, Order::Acknowledge(up_to));
}

fn running(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, started: Started) {
    let token = started.token;
    let Some(job) = it.held(token, id) else {
        late(it, now, id, token, "running");
        supersede(it, session, token);
        return;
    };
    let place = job.place(token.job);
    let Some(attempt) = job.attempt_mut() else {
        return;
    };
    if attempt.started_at.is_some() {
        // Told again behind a start of ours.
        if attempt.is_unwatched() {
            watch_overrun(it, now, token, started.ago);
        }
        return;
    }
    let at = before(now.utc, started.ago).max(attempt.assigned_at);
    attempt.started_at = Some(at);
    attempt.may_run = true;
    if core::mem::take(&mut attempt.prefetched) {
        it.fleet.fetch(id, place);
    }
    pardon(it, id, token);
    watch_overrun(it, now, token, started.ago);
    it.phases.remove(&token.job);
    it.change(Change::Started { token, at, container: started.container });
}

/// Tells a worker to stop what has a successor. Not so with an attempt that was never given here; and as long as that cannot be told,
/// the inventory is waited for, whose answer stops what is to be stopped.
pub(crate) fn supersede(it: &mut Scheduler, session: SessionId, token: Token) {
    let Some(id) = it.fleet.by_session(session) else { return };
    if !strangers::may_be(it, id, token) {
        stop_superseded(it, session, token);
    }
}

fn stop_superseded(it: &mut Scheduler, session: SessionId, token: Token) {
    it.send(session, Order::Cancel(Cancel { token, grace: None, cause: StopCause::Superseded }));
}

/// A start worked: what this worker was excluded for before counts no more.
fn pardon(it: &mut Scheduler, id: WorkerId, token: Token) {
    let Some(definition) = definition_of(it, token) else { return };
    if let Some(worker) = it.fleet.worker_mut(id) {
        worker.exclusions.pardon(&definition);
    }
}

/// Counts the run timeout from when the container started, by the clock of its worker.
pub(crate) fn watch_overrun(it: &mut Scheduler, now: Now, token: Token, ago: Duration) {
    let Some(limit) = it.jobs.get(&token.job).and_then(|job| it.run_limit(job)) else {
        return;
    };
    let at = now.up + limit.saturating_sub(ago);
    if let Some(attempt) = it.jobs.get_mut(&token.job).and_then(|job| job.attempt_mut()) {
        attempt.overrun_at = Some(at);
        it.timers.set_alarm(at, Alarm::Overrun(token.job, token.fence));
    }
}

fn succeeded(it: &mut Scheduler, now: Now, id: WorkerId, ended: Succeeded) {
    let closed = closed(now, ended.token, Outcome::Succeeded, ended.timing, ended.output);
    let closed = ClosedAttempt {
        exit_code: Some(0),
        message: ended.note.unwrap_or_default(),
        result: ended.result,
        ..closed
    };
    finish(it, now, id, closed);
}

fn failed(it: &mut Scheduler, now: Now, id: WorkerId, ended: Failed) {
    // A failure with the outcome of a success makes no sense; what a worker says is never asserted on.
    let outcome = if ended.outcome == Outcome::Succeeded { Outcome::Failed } else { ended.outcome };
    let closed = closed(now, ended.token, outcome, ended.timing, ended.output);
    let closed = ClosedAttempt { exit_code: ended.exit_code, message: ended.message, ..closed };
    let host_failed = outcome == Outcome::HostFailed && it.held(ended.token, id).is_some();
    if let Some(definition) = definition_of(it, ended.token).filter(|_| host_failed) {
        exclude(it, now, id, Excluded::Revision(definition.revision), HOST_FAILED);
    }
    finish(it, now, id, closed);
}

fn finish(it: &mut Scheduler, now: Now, id: WorkerId, mut closed: ClosedAttempt) {
    let token = closed.token;
    strangers::part(it, id, token);
    if closed.outcome == Outcome::Succeeded && it.held(token, id).is_some() {
        pardon(it, id, token);
    }
    let Some(attempt) = it.held(token, id).and_then(|job| job.attempt_mut()) else {
        late(it, now, id, token, closed.outcome.name());
        confirm::ended(it, now, id, token);
        return;
    };
    let earliest = attempt.assigned_at;
    closed.started_at = attempt.started_at.or(closed.started_at.map(|at| at.max(earliest)));
    closed.ended_at = closed.ended_at.max(closed.started_at.unwrap_or(earliest));
    close::close(it, now, token.job, closed);
}

fn closed(now: Now, token: Token, outcome: Outcome, timing: Timing, output: OutputLengths) -> ClosedAttempt {
    let ended_at = before(now.utc, timing.ended_ago);
    ClosedAttempt {
        token,
        outcome,
        exit_code: None,
        message: String::new(),
        started_at: timing.ran.map(|ran| before(ended_at, ran)),
        ended_at,
        output,
        result: None,
        released: None,
    }
}

fn before(now: Timestamp, ago: Duration) -> Timestamp {
    now - ago
}

/// After `host_failed`: a minute, doubling (DESIGN.md section 3); a host that was mended takes part again within the hour by itself.
const HOST_FAILED: Sentence = Sentence { first: Duration::from_secs(60), max: Duration::from_secs(3_600) };
/// After `full`, `draining` and `runtime_unavailable`: from one second to one minute (DESIGN.md section 3).
const GIVEN_BACK: Sentence = Sentence { first: Duration::from_secs(1), max: Duration::from_secs(60) };

fn given_back(it: &mut Scheduler, now: Now, id: WorkerId, released: Released) {
    let Released { token, cause, why } = released;
    if it.held(token, id).is_none() {
        strangers::part(it, id, token);
        late(it, now, id, token, "released");
        confirm::ended(it, now, id, token);
        return;
    }
    if let Some(definition) = definition_of(it, token) {
        let exclusion = match cause {
            ReleaseCause::Recalled => None,
            ReleaseCause::Full | ReleaseCause::Draining => Some((Excluded::Anything, GIVEN_BACK)),
            ReleaseCause::RuntimeUnavailable => Some((Excluded::Runtime(definition.runtime()), GIVEN_BACK)),
            ReleaseCause::Policy => Some((Excluded::Revision(definition.revision), Sentence::FOR_GOOD)),
        };
        if let Some((of, sentence)) = exclusion {
            exclude(it, now, id, of, sentence);
        }
    }
    let closed = closed(now, token, Outcome::Released, Timing::default(), OutputLengths::default());
    let message = if why.is_empty() { cause.words().into() } else { why };
    let closed = ClosedAttempt { message, released: Some(cause), ..closed };
    finish(it, now, id, closed);
}

fn definition_of(it: &Scheduler, token: Token) -> Option<Arc<Definition>> {
    it.jobs.get(&token.job).and_then(|job| it.definition(job))
}

/// Does not offer a worker these jobs for a while.
fn exclude(it: &mut Scheduler, now: Now, id: WorkerId, of: Excluded, sentence: Sentence) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    if let Some(until) = worker.exclusions.add(now.up, of, sentence) {
        it.timers.set_alarm(until, Alarm::Offer(id));
    }
}

fn starting(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, token: Token) {
    if let Some(attempt) = it.held(token, id).and_then(|job| job.attempt_mut()) {
        // From the acknowledgement on its container may exist.
        (attempt.may_run, attempt.begun) = (true, true);
    } else if strangers::is_idle_rival(it, token, Phase::Backlog) {
        // It waits for our word, so nothing of it is there yet.
        stop_superseded(it, session, token);
    } else {
        supersede(it, session, token);
    }
    progress(it, now, session, id, token, Phase::Starting);
}

fn heartbeat(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, beat: Heartbeat) {
    connect::note_seen(it, id, now.utc);
    it.send(session, Order::Pulse(beat.number));
}

fn progress(it: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, token: Token, phase: Phase) {
    let Some(job) = it.held(token, id) else { return };
    let place = job.place(token.job);
    let Some(attempt) = job.attempt_mut() else { return };
    if phase == Phase::Unknown {
        // A worker whose runtime was silent when it looked knows no better than its inventory: the next one settles it.
        if !attempt.unsettled {
            inventory::absent(it, now, token.job, session);
        }
        return;
    }
    if attempt.started_at.is_some() {
        return;
    }
    attempt.begun |= inventory::is_begun(phase);
    // What has left the backlog is not asked back any more.
    if phase != Phase::Backlog && core::mem::take(&mut attempt.prefetched) {
        it.fleet.fetch(id, place);
    }
    it.phases.insert(token.job, phase);
    it.changed = true;
}

fn changed(it: &mut Scheduler, id: WorkerId, condition: Condition) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    worker.runtimes = condition.runtimes;
    worker.lift_exclusions();
    worker.slots = condition.slots;
    worker.leaving = condition.draining;
    it.fleet.refresh(id);
    it.fleet.note_growth();
    it.changed = true;
}

fn wanted(it: &mut Scheduler, id: WorkerId, session: SessionId, revisions: &[Revision]) {
    for revision in revisions {
        if let Some(number) = it.definitions.find(*revision) {
            if let Some(worker) = it.fleet.worker_mut(id) {
                worker.told.remove(&number);
            }
            it.tell(id, session, number);
        }
    }
}

/// Records a report about an attempt that is not current. It changes nothing else.
fn late(it: &mut Scheduler, now: Now, worker: WorkerId, token: Token, said: &str) {
    let note = Note::LateReport { token, worker, said: String::from(said) };
    it.change(Change::Noted { job: token.job, at: now.utc, note });
}
