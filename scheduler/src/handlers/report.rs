//! Handles reports of workers. Only reports with a current token change a job. All numbered reports are
//! acknowledged after the commit.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use protocol::order::{Cancel, StopCause};
use protocol::report::{
    Condition, Failed, Heartbeat, Numbered, Outcome, OutputLengths, Phase, ReleaseCause, Released, Started,
    Succeeded, Timing,
};
use protocol::{Now, Order, Report, ReportNo, Revision, RuntimeKind, SessionId, Timestamp, Token, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::breaker::SUSPECT_BACKOFF;
use crate::handlers::{
    attempt_end, batch, connect, define, expect, expire, first_report, hook, overrun, worker_identity,
};
use crate::job::{Progress, Run, StartState};
use crate::placement::exclusion::{Excluded, ExclusionBackoff};
use crate::reconcile::{foreign, inventory, late_reports, unconfirmed, unknown_attempts};
use crate::step::{BrokenRule, Change, CloseReason, ClosedAttempt, Effect};
use crate::timers::UptimeTimer;

pub(crate) fn report(scheduler: &mut Scheduler, now: Now, session: SessionId, report: Report) {
    // The frame belongs to an older session.
    let Some(id) = scheduler.fleet.by_session(session) else {
        worker_identity::renew_claim(scheduler, session, now.up);
        return;
    };
    connect::record_message(scheduler, id, now.up);
    match report {
        Report::Running(list) => take_numbered(scheduler, session, id, list, |scheduler, started| {
            running(scheduler, now, session, id, started)
        }),
        Report::Success(list) => take_numbered(scheduler, session, id, list, |scheduler, ended| {
            succeeded(scheduler, now, id, ended)
        }),
        Report::Failure(list) => {
            take_numbered(scheduler, session, id, list, |scheduler, ended| failed(scheduler, now, id, ended))
        }
        Report::Released(list) => take_numbered(scheduler, session, id, list, |scheduler, released| {
            release_attempt(scheduler, now, id, released)
        }),
        Report::Starting(list) => take_numbered(scheduler, session, id, list, |scheduler, token| {
            starting(scheduler, now, session, id, token)
        }),
        Report::Inventory(part) => inventory::inventory(scheduler, now, session, id, part),
        Report::Heartbeat(beat) => heartbeat(scheduler, now, session, id, beat),
        Report::Progress(list) | Report::Status(list) => {
            for (token, phase) in list {
                progress(scheduler, now, session, id, token, phase);
            }
        }
        Report::Condition(condition) => update_condition(scheduler, id, condition),
        Report::Foreign(found) => foreign::stop_leftovers(scheduler, session, &found),
        Report::Wanted(revisions) => resend_definitions(scheduler, id, session, &revisions),
        // Output and samples of usage do not pass through the scheduler. A second Hello is a protocol violation.
        Report::Output(_) | Report::Usage(_) => {}
        Report::Hello(_) => {
            scheduler.effect(Effect::Close(session, CloseReason::Protocol(BrokenRule::SecondHello)));
        }
    }
}

/// Takes in new entries and acknowledges all of them. Numbers of one process have no gaps.
fn take_numbered<T>(
    scheduler: &mut Scheduler,
    session: SessionId,
    id: WorkerId,
    list: Numbered<T>,
    mut take: impl FnMut(&mut Scheduler, T),
) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    // After a restart of the server the first report of a session tells the last number.
    let last = worker.last_report.unwrap_or(ReportNo(list.first.0.saturating_sub(1)));
    if list.first > last.next() || list.first == ReportNo(0) {
        let rule = BrokenRule::ReportGap { found: list.first, next: last.next() };
        // The worker sends the same report again before its next inventory. It is taken then: the inventory tells the state of each attempt.
        worker.last_report = None;
        scheduler.effect(Effect::Close(session, CloseReason::Protocol(rule)));
        return;
    }
    let up_to = list.last().max(last);
    worker.last_report = Some(up_to);
    let known = usize::try_from(last.0 + 1 - list.first.0).unwrap_or(usize::MAX);
    for entry in list.list.into_iter().skip(known) {
        take(scheduler, entry);
    }
    scheduler.send(session, Order::Acknowledge(up_to));
}

fn running(scheduler: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, started: Started) {
    let token = started.token;
    first_report::reported(scheduler, token, id);
    let ageing = scheduler.config.priority_ageing;
    let Some(job) = scheduler.held(token, id) else {
        late_reports::record(scheduler, now, id, token, "running");
        supersede(scheduler, session, token);
        return;
    };
    let key = job.queue_key(ageing, token.job);
    let Some(attempt) = job.attempt_mut() else {
        return;
    };
    if attempt.has_started() {
        // The worker repeats it after a restart of the server.
        if attempt.has_no_overrun_alarm() {
            overrun::arm(scheduler, now, token, started.ago);
        }
        expect::arm_slow(scheduler, now, token, started.ago);
        return;
    }
    let at = before(now.utc, started.ago).max(attempt.assigned_at);
    let was_prefetched = attempt.leave_backlog();
    attempt.progress = Progress::Running(Run::since(at));
    attempt.start.raise(StartState::MayStart);
    let number = attempt.number;
    if was_prefetched {
        scheduler.fleet.leave_backlog(id, key);
    }
    reset_backoff(scheduler, id, token);
    overrun::arm(scheduler, now, token, started.ago);
    expect::arm_slow(scheduler, now, token, started.ago);
    scheduler.phases.remove(&token.job);
    record_image(scheduler, id, token);
    scheduler.change(Change::Started { token, at, container: started.container });
    expire::clear(scheduler, token.job);
    hook::started(scheduler, token.job, number, at);
    batch::cancel_with_batch(scheduler, now, token.job);
}

/// Tells a worker to stop a superseded attempt. Unknown attempts are left running. Before the inventory is
/// complete nothing is stopped; its answer does that.
pub(crate) fn supersede(scheduler: &mut Scheduler, session: SessionId, token: Token) {
    let Some(id) = scheduler.fleet.by_session(session) else { return };
    if !unknown_attempts::may_be_unknown(scheduler, id, token) {
        stop_superseded(scheduler, session, token);
    }
}

fn stop_superseded(scheduler: &mut Scheduler, session: SessionId, token: Token) {
    scheduler.send(session, Order::Cancel(Cancel { token, grace: None, cause: StopCause::Superseded }));
}

/// Resets the backoff of exclusions after a successful start.
fn reset_backoff(scheduler: &mut Scheduler, id: WorkerId, token: Token) {
    let Some(definition) = definition_of(scheduler, token) else { return };
    let worker = scheduler.fleet.worker_mut(id);
    if worker.is_some_and(|worker| worker.health.record_start(&definition)) {
        scheduler.fleet.refresh(id);
        scheduler.fleet.mark_capacity_grown(id);
        scheduler.changed = true;
    }
}

/// The worker has the image of this attempt. Definitions of other runtimes have none.
fn record_image(scheduler: &mut Scheduler, id: WorkerId, token: Token) {
    if let Some(definition) = definition_of(scheduler, token).filter(|it| !it.container.image.is_empty()) {
        scheduler.fleet.images.record(id, &definition.container.image);
    }
}

fn succeeded(scheduler: &mut Scheduler, now: Now, id: WorkerId, ended: Succeeded) {
    let closed = closed(now, ended.token, Outcome::Succeeded, ended.timing, ended.output);
    let closed = ClosedAttempt {
        exit_code: Some(0),
        message: ended.note.unwrap_or_default(),
        result: ended.result,
        usage: ended.usage,
        ..closed
    };
    finish(scheduler, now, id, closed);
}

fn failed(scheduler: &mut Scheduler, now: Now, id: WorkerId, ended: Failed) {
    // A Failure with the outcome `succeeded` is invalid; it counts as failed.
    let outcome = if ended.outcome == Outcome::Succeeded { Outcome::Failed } else { ended.outcome };
    // A late report is noted as it came.
    let is_current = scheduler.held(ended.token, id).is_some();
    let definition = definition_of(scheduler, ended.token).filter(|_| is_current);
    let outcome = definition.as_ref().map_or(outcome, |it| it.outcome_of(outcome, ended.exit_code));
    let closed = closed(now, ended.token, outcome, ended.timing, ended.output);
    let closed =
        ClosedAttempt { exit_code: ended.exit_code, message: ended.message, usage: ended.usage, ..closed };
    if let Some(definition) = definition.filter(|_| outcome == Outcome::HostFailed) {
        exclude(scheduler, now, id, Excluded::Revision(definition.revision), HOST_FAILED_BACKOFF);
        let worker = scheduler.fleet.worker_mut(id);
        if worker.is_some_and(|it| it.health.breaker.fail(now.utc, definition.revision, &closed.message)) {
            exclude(scheduler, now, id, Excluded::Suspect, SUSPECT_BACKOFF);
        }
    }
    finish(scheduler, now, id, closed);
}

fn finish(scheduler: &mut Scheduler, now: Now, id: WorkerId, mut closed: ClosedAttempt) {
    let token = closed.token;
    unknown_attempts::remove_ended(scheduler, id, token);
    if closed.outcome == Outcome::Succeeded && scheduler.held(token, id).is_some() {
        reset_backoff(scheduler, id, token);
        record_image(scheduler, id, token);
    }
    let Some(attempt) = scheduler.held(token, id).and_then(|job| job.attempt_mut()) else {
        late_reports::record(scheduler, now, id, token, closed.outcome.name());
        unconfirmed::confirm(scheduler, now, id, token);
        return;
    };
    let earliest = attempt.assigned_at;
    // The final report carries the run time by the container's own start and end. The report of the start may have come late.
    let ran = closed.started_at.map(|at| closed.ended_at.since(at)).unwrap_or_default();
    closed.started_at = closed.started_at.map(|at| at.max(earliest)).or(attempt.started_at());
    let started_at = closed.started_at.unwrap_or(earliest);
    // By the clock of its engine it may have begun before it was assigned. It ran as long as it ran, and has ended by now.
    closed.ended_at = closed.ended_at.max((started_at + ran).min(now.utc)).max(started_at);
    attempt_end::close(scheduler, now, token.job, closed);
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
        usage: Default::default(),
        result: None,
        released: None,
    }
}

fn before(now: Timestamp, ago: Duration) -> Timestamp {
    now - ago
}

/// Backoff after `host_failed`: a minute, doubling up to an hour (docs/design/scheduling.md, Q7).
const HOST_FAILED_BACKOFF: ExclusionBackoff =
    ExclusionBackoff { first: Duration::from_secs(60), max: Duration::from_secs(3_600) };
/// Backoff after `full`, `draining` and `runtime_unavailable`: one second, doubling up to a minute
/// (docs/design/scheduling.md, Q6).
const RELEASED_BACKOFF: ExclusionBackoff =
    ExclusionBackoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };

/// Backoff after `runtime_unavailable` for one definition alone, such as for the registry of its image: ten seconds, doubling up to five
/// minutes (docs/design/scheduling.md, Q6).
const OUT_OF_REACH_BACKOFF: ExclusionBackoff =
    ExclusionBackoff { first: Duration::from_secs(10), max: Duration::from_secs(300) };

fn release_attempt(scheduler: &mut Scheduler, now: Now, id: WorkerId, released: Released) {
    let Released { token, cause, why } = released;
    if scheduler.held(token, id).is_none() {
        unknown_attempts::remove_ended(scheduler, id, token);
        late_reports::record(scheduler, now, id, token, "released");
        unconfirmed::confirm(scheduler, now, id, token);
        return;
    }
    let was_recalled = scheduler
        .held(token, id)
        .and_then(|job| job.attempt())
        .is_some_and(|attempt| attempt.recalled || attempt.stopping.is_some());
    if let Some(definition) = definition_of(scheduler, token) {
        let exclusion = match cause {
            ReleaseCause::Recalled if was_recalled => None,
            // A worker that releases unasked would get the job again at once, and without end.
            ReleaseCause::Recalled | ReleaseCause::Full | ReleaseCause::Draining => {
                Some((Excluded::Anything, RELEASED_BACKOFF))
            }
            // Only the image's registry or a mount of this definition is out of reach; the worker runs others.
            ReleaseCause::RuntimeUnavailable if offers(scheduler, id, definition.runtime()) => {
                Some((Excluded::Revision(definition.revision), OUT_OF_REACH_BACKOFF))
            }
            ReleaseCause::RuntimeUnavailable => {
                Some((Excluded::Runtime(definition.runtime()), RELEASED_BACKOFF))
            }
            // Secrets may be delivered, and the way to the worker encrypted, at any time.
            ReleaseCause::Secrets => Some((Excluded::Revision(definition.revision), RELEASED_BACKOFF)),
            ReleaseCause::Policy => {
                Some((Excluded::Revision(definition.revision), ExclusionBackoff::UNTIL_RESTART))
            }
        };
        if let Some((of, backoff)) = exclusion {
            exclude(scheduler, now, id, of, backoff);
        }
    }
    let closed = closed(now, token, Outcome::Released, Timing::default(), OutputLengths::default());
    let message = if why.is_empty() { cause.words().into() } else { why };
    let closed = ClosedAttempt { message, released: Some(cause), ..closed };
    finish(scheduler, now, id, closed);
}

fn offers(scheduler: &Scheduler, id: WorkerId, runtime: RuntimeKind) -> bool {
    scheduler.fleet.worker(id).is_some_and(|worker| worker.capacity.offers(runtime))
}

fn definition_of(scheduler: &Scheduler, token: Token) -> Option<Arc<Definition>> {
    scheduler.jobs.get(&token.job).and_then(|job| scheduler.definition(job))
}

/// Excludes a worker from jobs for a while.
fn exclude(scheduler: &mut Scheduler, now: Now, id: WorkerId, of: Excluded, backoff: ExclusionBackoff) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    if let Some(until) = worker.health.exclusions.add(now.up, of, backoff) {
        scheduler.timers.set_uptime(until, UptimeTimer::ExclusionEnd(id));
    }
}

fn starting(scheduler: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, token: Token) {
    if let Some(attempt) = scheduler.held(token, id).and_then(|job| job.attempt_mut()) {
        // The container may exist from the acknowledgement on.
        attempt.start.raise(StartState::Announced);
        // The order to stop comes before the acknowledgement.
        batch::cancel_with_batch(scheduler, now, token.job);
    } else if unknown_attempts::is_unstarted_rival(scheduler, token, Phase::Backlog) {
        // The worker waits for the acknowledgement, so nothing is started yet.
        stop_superseded(scheduler, session, token);
    } else {
        supersede(scheduler, session, token);
    }
    progress(scheduler, now, session, id, token, Phase::Starting);
}

fn heartbeat(scheduler: &mut Scheduler, now: Now, session: SessionId, id: WorkerId, beat: Heartbeat) {
    connect::record_seen(scheduler, id, now.utc);
    connect::renew_contact(scheduler, id, now.up);
    scheduler.send(session, Order::Pulse(beat.number));
}

fn progress(
    scheduler: &mut Scheduler,
    now: Now,
    session: SessionId,
    id: WorkerId,
    token: Token,
    phase: Phase,
) {
    first_report::reported(scheduler, token, id);
    let ageing = scheduler.config.priority_ageing;
    let Some(job) = scheduler.held(token, id) else { return };
    let key = job.queue_key(ageing, token.job);
    let Some(attempt) = job.attempt_mut() else { return };
    if phase == Phase::Unknown {
        // The runtime did not answer when the worker looked, so the worker does not know. The next inventory
        // decides.
        if !attempt.was_missing_at_reconnect() {
            inventory::resolve_absent(scheduler, now, token.job, session);
        }
        return;
    }
    if attempt.has_started() {
        return;
    }
    // While it pulls the image there is no container, and the worker still has to ask.
    if inventory::start_state(phase) == StartState::Announced {
        attempt.start = StartState::Announced;
    }
    // An attempt that left the backlog cannot be recalled.
    if phase != Phase::Backlog && attempt.leave_backlog() {
        scheduler.fleet.leave_backlog(id, key);
    }
    scheduler.phases.insert(token.job, phase);
    scheduler.changed = true;
}

fn update_condition(scheduler: &mut Scheduler, id: WorkerId, condition: Condition) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    worker.set_runtimes(condition.runtimes);
    worker.capacity.slots = condition.slots;
    if let Some(session) = worker.link.state_mut() {
        session.leaving = condition.draining;
    }
    scheduler.fleet.reclassify(id);
    scheduler.fleet.refresh(id);
    scheduler.fleet.mark_capacity_grown(id);
    scheduler.changed = true;
}

fn resend_definitions(scheduler: &mut Scheduler, id: WorkerId, session: SessionId, revisions: &[Revision]) {
    // A worker that names one many times gets it once.
    for revision in revisions.iter().collect::<alloc::collections::BTreeSet<_>>() {
        let number = scheduler.definitions.find(*revision);
        // One that is too old could not read the answer.
        if let Some(number) = number.filter(|number| !inventory::is_too_old(scheduler, id, *number)) {
            if let Some(session) = scheduler.fleet.worker_mut(id).and_then(|worker| worker.link.state_mut()) {
                session.sent_definitions.remove(revision);
            }
            define::send_definition(scheduler, id, session, number);
        }
    }
}
