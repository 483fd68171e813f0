//! Inputs, decisions and messages in a few words each.

use std::fmt::Display;

use protocol::report::{Numbered, Phase};
use protocol::{Order, Report, Token};
use scheduler::input::Input;
use scheduler::step::{Answer, Change, ClosedAttempt, Note};
use worker::Effect;
use worker::input::{Found, RuntimeEvent};

pub(crate) fn input(input: &Input) -> String {
    match input {
        Input::ReplaceDefinitions(list) => format!("{} definitions", list.len()),
        Input::Submit(it) => {
            let key = it.idempotency_key.as_ref().map(|key| format!(" key {}", key.key)).unwrap_or_default();
            format!(
                "submit {} of revision {}{key}",
                it.jobs.len(),
                it.jobs.iter().next().map_or(0, |job| job.revision.0)
            )
        }
        Input::Cancel(it) => format!("cancel job {}", it.job),
        Input::ChangeBatch(it) => format!("change the batch of job {}: {:?}", it.batch, it.update),
        Input::CancelBatch(it) => format!("cancel the batch of job {}", it.batch),
        Input::Release(it) => format!("release job {}", it.job),
        Input::Connected(it) => {
            format!("hello of {} incarnation {} on {}", it.name, it.incarnation, short(it.session))
        }
        Input::Disconnected(session) => format!("{} is gone", short(*session)),
        Input::Reported(session, it) => format!("{} {}", short(*session), report(it)),
        Input::Unsent(_, tokens) => {
            format!("unsent {}", tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
        Input::SessionsActive(list) => {
            let each =
                list.iter().map(|(session, up)| format!("{} at {} ms", short(*session), up.0 / 1_000_000));
            format!("when it last heard of {}", each.collect::<Vec<_>>().join(", "))
        }
        Input::Operate(_, worker, operation) => format!("{operation:?} worker {worker}"),
        Input::Backfill(it) => {
            format!("backfill {} slots of {}/{}", it.slots.len(), it.definition, it.schedule)
        }
        Input::Pause(it) => {
            let until = it.until.map(|until| format!(" until {}", until.0)).unwrap_or_default();
            format!("{} {}{until}", if it.paused { "pause" } else { "resume" }, it.target)
        }
        Input::Tick => "tick".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn change(change: &Change) -> String {
    match change {
        Change::Added(it) => format!("job {} {}", it.job, it.state.name()),
        Change::Assigned(it) => format!("{} to worker {}, attempt {}", it.token, it.worker, it.number),
        Change::Started { token, .. } => format!("{token} started"),
        Change::Stopping { token, cause, .. } => format!("{token} stopping: {}", cause.name()),
        Change::AttemptClosed { state, closed, .. } => format!("{} after {}", state.name(), end(closed)),
        Change::ContainerGone { token, worker, .. } => format!("{token} is gone from worker {worker}"),
        Change::Updated(it) => format!("job {} {}, changed by a client", it.job, it.state.name()),
        Change::QuarantineReleased { job } => format!("job {job} may go on"),
        Change::Expectation(row) => format!("{row:?}"),
        Change::ExpectationDropped { definition } => format!("nothing is expected of {definition}"),
        Change::BecameDue { job } => format!("job {job} due"),
        Change::Expiry { job, at } => format!("job {job} expires {:?}", at.map(|at| at.0)),
        Change::Ended(it) => {
            let how = it.closed.as_ref().map_or_else(|| "no attempt".to_owned(), end);
            let confirmed = if it.confirmed { "" } else { ", unconfirmed" };
            format!("job {} ended {} with {how}{confirmed}", it.job, it.state.name())
        }
        Change::Noted { note, .. } => match note {
            Note::LateReport { token, worker, said } => format!("late: {token} {said} says worker {worker}"),
            Note::Unreachable { token, worker } => format!("{token} unreachable on worker {worker}"),
            Note::Revived { token, worker } => format!("{token} revived on worker {worker}"),
            other => format!("{other:?}"),
        },
        Change::BatchAdded(it) => {
            let max = it.options.max_failures.map(|max| format!(", at most {max} failures"));
            format!("jobs from {} on are a batch of {}{}", it.first, it.count, max.unwrap_or_default())
        }
        Change::BatchCancelled { first, .. } => format!("the batch of job {first} is cancelled"),
        Change::BatchReplaced { first, by } => format!("the batch of job {by} replaces that of job {first}"),
        Change::BatchChanged { first, limits } => format!("the batch of job {first} has {limits:?}"),
        Change::BatchEnded { first, failed, state, .. } => {
            format!("the batch of job {first} ended {}, {failed} failed", state.name())
        }
        Change::PendingBatch { first, last } => format!("jobs {first} to {last} are being made"),
        Change::BatchCompleted { first } => format!("the batch of job {first} is made"),
        Change::IdempotencyKeyStored { key, holder, .. } => {
            format!("key {key} holds job {} and {} in all", holder.job, holder.count)
        }
        Change::NumbersSkipped { job, fence, .. } => {
            format!("numbers up to job {job} and fence {fence} left out")
        }
        Change::CordonEnded { row, until } => {
            format!("worker {} takes jobs again: its cordon was until {}", row.worker, until.0)
        }
        Change::Worker(row) => {
            let slots = row.slots.map(|slots| format!(" slots {slots}")).unwrap_or_default();
            format!(
                "worker {} {}{}{slots}",
                row.worker,
                row.name,
                if row.cordoned { " cordoned" } else { "" }
            )
        }
        Change::WorkerForgotten(worker) => format!("worker {worker} forgotten"),
        Change::Schedule(row) => {
            format!("schedule {}/{} decided until {}", row.definition, row.schedule, row.cursor.0)
        }
        Change::Fire(row) => format!(
            "slots {} to {} of {}/{}: {:?}",
            row.from.0, row.to.0, row.definition, row.schedule, row.verdict
        ),
        Change::Hook(row) => {
            format!("{} of job {} for {}: {:?}", row.event.name(), row.parent, row.target, row.result)
        }
        Change::Dependency(row) => {
            let ended = row.ended.map(|state| format!(", which {}", state.name())).unwrap_or_default();
            format!("job {} after {} has {}{ended}", row.job, row.on, row.requires.name())
        }
        Change::DependenciesDropped { job, .. } => format!("job {job} waits for no others"),
        Change::ResultsTaken { job, .. } => format!("job {job} takes results"),
        Change::Parent(row) => format!("parent {}: {:?} {:?}", row.job, row.plan, row.counts),
        Change::Member(row) => format!("{row:?}"),
        Change::WorkerUsed(of) => format!("{of:?}"),
        Change::Unique(row) => format!("key {} of {}: {:?}", row.id.key, row.id.definition, row.holder),
        Change::RateUsed(row) => format!("{} recovers at {}", row.id, row.recovered.0),
        Change::Paused { target, pause } => {
            let until = pause.in_force().and_then(|pause| pause.until);
            let until = until.map(|until| format!(" until {}", until.0)).unwrap_or_default();
            format!("{target} {}{until}", if pause.in_force().is_some() { "paused" } else { "goes on" })
        }
    }
}

fn end(closed: &ClosedAttempt) -> String {
    let code = closed.exit_code.map(|code| format!(" {code}")).unwrap_or_default();
    let why = if closed.message.is_empty() { String::new() } else { format!(" ({})", closed.message) };
    format!("{} {}{code}{why}", closed.token, closed.outcome.name())
}

pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(it) => format!("accepted job {} and {} in all", it.first, it.count),
        Answer::Duplicate(job) => format!("no new job: job {job} has the unique key"),
        Answer::ExistingBatch { first, .. } => {
            format!("no new batch: that of job {first} has the unique key")
        }
        Answer::Replayed(it) => format!("accepted before: job {} and {} in all", it.job, it.count),
        other => format!("{other:?}"),
    }
}

pub(crate) fn order(order: &Order) -> String {
    match order {
        Order::Welcome(it) => {
            format!("welcome {}, worker {}, last report {}", short(it.session), it.worker, it.last_report)
        }
        Order::Definitions(list) | Order::ExtendedDefinitions(list) => {
            format!(
                "definitions {}",
                list.iter().map(|it| it.revision.0.to_string()).collect::<Vec<_>>().join(" ")
            )
        }
        Order::Enqueue(list) => format!("enqueue {}", tokens(list.iter().map(|it| it.token))),
        Order::Reconciled(it) => {
            let each = it.attempts.iter().map(|(token, verdict)| format!("{token} {verdict:?}"));
            format!("reconciled [{}]", each.collect::<Vec<_>>().join(", "))
        }
        Order::Cancel(it) => format!("cancel {} ({})", it.token, it.cause.name()),
        Order::Recall(list) => format!("recall {}", tokens(list.iter().copied())),
        Order::Acknowledge(number) => format!("acknowledge {number}"),
        Order::Pulse(number) => format!("pulse {number}"),
        other => format!("{other:?}"),
    }
}

fn report(report: &Report) -> String {
    match report {
        Report::Hello(it) => format!("hello {} incarnation {}", it.name, it.incarnation),
        Report::Running(list) => format!("running {}", numbered(list, |it| it.token)),
        Report::Success(list) => format!("success {}", numbered(list, |it| it.token)),
        Report::Failure(list) => {
            let each = list.list.iter().map(|it| format!("{} {}", it.token, it.outcome.name()));
            format!("failure from {}: {}", list.first, each.collect::<Vec<_>>().join(", "))
        }
        Report::Released(list) => {
            let each = list.list.iter().map(|it| format!("{} {}", it.token, it.cause.name()));
            format!("released from {}: {}", list.first, each.collect::<Vec<_>>().join(", "))
        }
        Report::Starting(list) => format!("starting {}", numbered(list, |it| *it)),
        Report::Inventory(it) => {
            let down = it.runtimes.iter().filter(|(_, answer)| !answer.is_available()).count();
            let silent = if down > 0 { ", engine silent" } else { "" };
            format!("inventory [{}]{silent}", phases(&it.attempts))
        }
        Report::Heartbeat(it) => format!("heartbeat {}", it.number),
        Report::Progress(list) => format!("progress {}", phases(list)),
        Report::Status(list) => format!("status {}", phases(list)),
        other => format!("{other:?}"),
    }
}

pub(crate) fn worker_input(input: &worker::Input) -> String {
    match input {
        worker::Input::Restored { attempts, foreign, .. } => {
            let each = attempts.iter().map(|it| format!("{} {}", it.launch.token, found(&it.found)));
            format!("restored [{}], {} foreign", each.collect::<Vec<_>>().join(", "), foreign.len())
        }
        worker::Input::Ordered(it) => order(it),
        worker::Input::Happened(event) => match event {
            RuntimeEvent::Progressed(token, phase) => format!("{token} {phase:?}"),
            RuntimeEvent::ImageMissing(token) => format!("{token} has no image"),
            RuntimeEvent::Prepared(token) => format!("{token} is prepared"),
            RuntimeEvent::Started { token, .. } => format!("{token} has started"),
            RuntimeEvent::Ended { token, exit, .. } => format!("{token} has ended: {exit:?}"),
            RuntimeEvent::Overdue(token) => format!("{token} is overdue"),
            RuntimeEvent::Refused { token, cause, .. } => format!("{token} refused: {}", cause.name()),
            RuntimeEvent::Surveyed { attempts, .. } => {
                format!("surveyed [{}]", tokens(attempts.iter().map(|it| it.launch.token)))
            }
            RuntimeEvent::Foreign(list) => format!("foreign [{}]", tokens(list.iter().map(|it| it.token))),
            RuntimeEvent::Availability(_, it) => format!("engine {it:?}"),
        },
        worker::Input::StorageFault(fault) => {
            format!("disk is {}", if fault.is_some() { "full" } else { "usable" })
        }
        worker::Input::DiskIsLow(is_low) => format!("disk is {}", if *is_low { "low" } else { "not low" }),
        worker::Input::OutputDone(token) => format!("output of {token} is done"),
        other => format!("{other:?}"),
    }
}

fn found(found: &Found) -> String {
    match found {
        Found::Running { .. } => "running".to_owned(),
        Found::Ended { exit, .. } => format!("ended: {exit:?}"),
        other => format!("{other:?}"),
    }
}

pub(crate) fn worker_effect(effect: &Effect) -> String {
    match effect {
        Effect::Send(it) => format!("says {}", report(it)),
        Effect::Start(launch) => format!("starts {}", launch.token),
        Effect::Pull { token, .. } => format!("pulls for {token}"),
        Effect::Run { token, .. } => format!("runs {token}"),
        Effect::Stop { token, cause, step, .. } => format!("stops {token} ({}): {step:?}", cause.name()),
        Effect::Forget { token, give_up_output, .. } => {
            format!("forgets {token}{}", if *give_up_output { ", giving up its output" } else { "" })
        }
        Effect::Reconnect { after, reason, .. } => format!("reconnects after {after:?}: {reason}"),
        Effect::Probe { .. } => "probes".to_owned(),
        other => format!("{other:?}"),
    }
}

fn numbered<T>(list: &Numbered<T>, token: impl Fn(&T) -> Token) -> String {
    format!("from {}: {}", list.first, tokens(list.list.iter().map(token)))
}

fn tokens(list: impl Iterator<Item = Token>) -> String {
    list.map(|token| token.to_string()).collect::<Vec<_>>().join(" ")
}

fn phases(list: &[(Token, Phase)]) -> String {
    let each = list.iter().map(|(token, phase)| format!("{token} {}", protocol::order::phase_name(*phase)));
    each.collect::<Vec<_>>().join(", ")
}

/// A session without the epoch in its upper half.
fn short(session: protocol::SessionId) -> impl Display {
    format!("s{}.{}", session.0 >> 32, session.0 & 0xffff_ffff)
}
