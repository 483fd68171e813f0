//! An attempt ends, its end becomes durable on the server, and it is forgotten.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::report::{OutputLengths, ReleaseCause};
use protocol::{ReportNo, Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage};
use crate::classify::{Verdict, classify};
use crate::input::{Exit, Fault, Stopping};
use crate::on::doubt;
use crate::outbox::Entry;
use crate::step::Effect;
use crate::worker::Worker;

/// Its runtime tells its end.
pub(crate) fn ended(worker: &mut Worker, token: Token, exit: Exit, output: OutputLengths, at: Uptime) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    if !attempt.is_live() {
        return;
    }
    // A container that had ended by itself before our stop keeps its true outcome.
    let stopped = attempt.stop.filter(|stop| at >= stop.at).map(|stop| stop.cause);
    let memory_bytes = attempt.memory_bytes();
    match (&exit, stopped) {
        (Exit::NotStarted { fault: Fault::Host, message, .. }, None) => {
            doubt::start_failed(worker, token, message);
        }
        (Exit::Ran { .. }, _) => {
            let runtime = attempt.runtime();
            doubt::start_worked(worker, runtime);
        }
        _ => {}
    }
    finish(worker, token, classify(exit, stopped, memory_bytes), output, at);
}

/// It had ended before this process began; the cause that an earlier one had put on disk decides, if it was there before the end.
pub(crate) fn restored_end(
    worker: &mut Worker,
    token: Token,
    exit: Exit,
    stopping: Option<Stopping>,
    output: OutputLengths,
    at: Uptime,
) {
    let stopped = stopping.filter(|stop| at >= stop.at).map(|stop| stop.cause);
    let memory_bytes = worker.attempts.get(&token).and_then(Attempt::memory_bytes);
    finish(worker, token, classify(exit, stopped, memory_bytes), output, at);
}

/// Its runtime did not start it, and that is not the job's fault.
pub(crate) fn refused(worker: &mut Worker, now: Uptime, token: Token, cause: ReleaseCause, why: String) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    match (&attempt.stage, attempt.stop) {
        (Stage::Launched(_) | Stage::Prepared, None) => give_back(worker, token, cause, why),
        (Stage::Launched(_) | Stage::Prepared, Some(stop)) => {
            let verdict = crate::classify::unstarted(stop.cause);
            finish(worker, token, verdict, OutputLengths::default(), now);
        }
        // It had told us of a start: then nobody knows what became of that.
        (Stage::Running { .. }, _) => ended(worker, token, Exit::Vanished, OutputLengths::default(), now),
        _ => {}
    }
}

/// Closes an attempt that was started: its slot is free, its final report is on its way.
fn finish(worker: &mut Worker, token: Token, verdict: Verdict, output: OutputLengths, at: Uptime) {
    worker.slots.give_back();
    let was_done = worker.attempts.get(&token).is_some_and(|attempt| attempt.output_done);
    let output_done = was_done || output == OutputLengths::default();
    let ended = Ended { acknowledged: false, told: None, output_done, launched: true };
    close(worker, token, verdict, output, at, ended);
}

/// Puts an attempt's final report on its way. It is kept until everything about it is durable.
pub(crate) fn close(
    worker: &mut Worker,
    token: Token,
    verdict: Verdict,
    output: OutputLengths,
    at: Uptime,
    ended: Ended,
) {
    worker.set_alarm(token, None);
    worker.fenced.remove(&token);
    worker.prepared.remove(&token);
    if let Some(attempt) = worker.attempts.get_mut(&token) {
        attempt.stage = Stage::Ended(ended);
        attempt.body = None;
        worker.outbox.ended(token, at, verdict, output);
    }
}

fn give_back(worker: &mut Worker, token: Token, cause: ReleaseCause, why: String) {
    worker.slots.give_back();
    worker.fenced.remove(&token);
    worker.prepared.remove(&token);
    worker.set_alarm(token, None);
    if let Some(attempt) = worker.attempts.remove(&token) {
        let runtime = attempt.runtime();
        worker.effects.push(Effect::Forget { token, runtime, give_up_output: true });
    }
    worker.outbox.released(token, cause, why);
}

/// Reports up to this one are durable.
pub(crate) fn acknowledged(worker: &mut Worker, now: Uptime, last: ReportNo) {
    let mut entries = Vec::new();
    worker.outbox.acknowledge(last, |entry| entries.extend(matter_of(entry)));
    settle(worker, now, entries);
}

/// A new connection: reports up to this one were durable before it. How an attempt has ended of which only the output is still wanted is
/// said once more, behind them: the server's store may have gone back to when it did not know, and nobody else could tell.
pub(crate) fn begin_again(worker: &mut Worker, now: Uptime, last: ReportNo) {
    let mut entries = Vec::new();
    worker.outbox.begin_again(last, |entry| entries.extend(matter_of(entry)));
    settle(worker, now, entries);
    for attempt in worker.attempts.values_mut() {
        if let Stage::Ended(ended) = &mut attempt.stage
            && let Some(entry) = ended.told.take()
        {
            ended.acknowledged = false;
            worker.outbox.again(*entry);
        }
    }
}

/// All output of it is durable, or was given up.
pub(crate) fn output_done(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    attempt.output_done = true;
    if let Stage::Ended(ended) = &mut attempt.stage {
        ended.output_done = true;
        if ended.acknowledged {
            worker.forget(token);
        }
    }
}

/// The disk on which output waits is nearly full, or has room again. Who waits already for nothing but its output has not much time left
/// then, and gets no more when there is room again.
pub(crate) fn disk_is_low(worker: &mut Worker, now: Uptime, is_low: bool) {
    let was_low = mem::replace(&mut worker.disk_is_low, is_low);
    if was_low || !is_low {
        return;
    }
    let by = now + LOW_DISK_PATIENCE;
    let waiting: Vec<Token> = worker
        .attempts
        .iter()
        .filter(|(_, it)| matches!(it.stage, Stage::Ended(_)) && it.alarm.is_some_and(|at| at > by))
        .map(|(token, _)| *token)
        .collect();
    for token in waiting {
        worker.set_alarm(token, Some(by));
    }
}

/// What an acknowledgement changes.
enum Matter {
    Final(Token, Box<Entry>),
    Starting(Token),
}

fn matter_of(entry: Entry) -> Option<Matter> {
    match entry {
        Entry::Starting { token } => Some(Matter::Starting(token)),
        _ => entry.final_token().map(|token| Matter::Final(token, Box::new(entry))),
    }
}

fn settle(worker: &mut Worker, now: Uptime, entries: Vec<Matter>) {
    for entry in entries {
        match entry {
            Matter::Final(token, entry) => final_acknowledged(worker, now, token, entry),
            Matter::Starting(token) => clear(worker, token),
        }
    }
}

fn final_acknowledged(worker: &mut Worker, now: Uptime, token: Token, entry: Box<Entry>) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let Stage::Ended(ended) = &mut attempt.stage else {
        return;
    };
    ended.acknowledged = true;
    if ended.output_done {
        worker.forget(token);
        return;
    }
    ended.told = Some(entry);
    if attempt.alarm.is_none() {
        let patience = if worker.disk_is_low { LOW_DISK_PATIENCE } else { OUTPUT_PATIENCE };
        worker.set_alarm(token, Some(now + patience));
    }
}

/// The server knows that it is about to start: it does, as soon as the gate is open.
fn clear(worker: &mut Worker, token: Token) {
    if let Some(attempt) = worker.attempts.get_mut(&token)
        && let Stage::Asking { cleared } = &mut attempt.stage
    {
        *cleared = true;
        worker.cleared.insert(token);
    }
}

/// How long an attempt that has ended for good keeps its output for the server. DESIGN.md section 6.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(600);
/// The same while the disk is nearly full: enough for a server that takes what it is sent.
const LOW_DISK_PATIENCE: Duration = Duration::from_secs(30);
