//! Ends of attempts: outcome, final report, removal.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::report::{OutputLengths, ReleaseCause};
use protocol::{ReportNo, Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage};
use crate::classify::{ExitVerdict, MemoryFigures, classify};
use crate::core::Worker;
use crate::end_facts::EndFacts;
use crate::handlers::{pull, start_failures};
use crate::input::{Exit, StartFailure, Stopping};
use crate::outbox::Entry;
use crate::step::Effect;

/// The runtime reports the end of an attempt.
pub(crate) fn on_ended(worker: &mut Worker, token: Token, exit: Exit, facts: EndFacts) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    if !attempt.is_in_runtime() {
        return;
    }
    // A program that ended before the stop keeps its true outcome.
    let stopped = attempt.stop.filter(|stop| facts.at >= stop.at).map(|stop| stop.cause);
    let limit = attempt.memory_bytes();
    let facts = facts.with_reached_limit(&exit, limit);
    let memory = MemoryFigures { limit, peak: facts.usage.memory_peak_bytes };
    match (&exit, stopped) {
        (Exit::NotStarted { fault: StartFailure::Host, message, .. }, None) => {
            start_failures::record_start_failure(worker, token, message);
        }
        (Exit::Ran { .. }, _) => {
            let runtime = attempt.runtime();
            start_failures::record_start(worker, runtime);
        }
        _ => {}
    }
    finish(worker, token, classify(exit, stopped, memory), facts);
}

/// The attempt ended before this process began. A stop recorded on disk decides if it is older than the end.
pub(crate) fn report_restored_end(
    worker: &mut Worker,
    token: Token,
    exit: Exit,
    stopping: Option<Stopping>,
    facts: EndFacts,
) {
    let stopped = stopping.filter(|stop| facts.at >= stop.at).map(|stop| stop.cause);
    let limit = worker.attempts.get(&token).and_then(Attempt::memory_bytes);
    let facts = facts.with_reached_limit(&exit, limit);
    let memory = MemoryFigures { limit, peak: facts.usage.memory_peak_bytes };
    finish(worker, token, classify(exit, stopped, memory), facts);
}

/// The runtime did not start the attempt for a reason outside of the job.
pub(crate) fn on_start_refused(
    worker: &mut Worker,
    now: Uptime,
    token: Token,
    cause: ReleaseCause,
    why: String,
) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    match (&attempt.stage, attempt.stop) {
        // The runtime had reported a start, so the result is unknown.
        (Stage::Running { .. }, _) => on_ended(worker, token, Exit::Vanished, EndFacts::unknown(now)),
        (_, Some(stop)) if attempt.is_in_runtime() => {
            let verdict = crate::classify::unstarted(stop.cause);
            finish(worker, token, verdict, EndFacts::unknown(now));
        }
        _ if attempt.is_in_runtime() => release(worker, token, cause, why),
        _ => {}
    }
}

/// Frees the slot of a launched attempt and reports its end.
fn finish(worker: &mut Worker, token: Token, verdict: ExitVerdict, facts: EndFacts) {
    pull::release_slots(worker, token);
    let was_output_done = worker.attempts.get(&token).is_some_and(|attempt| attempt.output_done);
    let output = facts.output;
    let output_done = was_output_done || output == OutputLengths::default();
    let ended = Ended {
        acknowledged: false,
        final_entry: None,
        output_done,
        output,
        unsent: None,
        needs_removal: true,
    };
    close(worker, token, verdict, facts, ended);
}

/// Reports the end of an attempt. It is kept until the report and the output are acknowledged.
pub(crate) fn close(worker: &mut Worker, token: Token, verdict: ExitVerdict, facts: EndFacts, ended: Ended) {
    worker.set_alarm(token, None);
    worker.armed_self_fences.remove(&token);
    worker.prepared.remove(&token);
    if let Some(attempt) = worker.attempts.get_mut(&token) {
        attempt.stage = Stage::Ended(ended);
        (attempt.overrides, attempt.secrets) = Default::default();
        worker.outbox.ended(token, verdict, facts);
    }
}

/// Gives an attempt that was not started back to the server.
fn release(worker: &mut Worker, token: Token, cause: ReleaseCause, why: String) {
    pull::release_slots(worker, token);
    worker.armed_self_fences.remove(&token);
    worker.prepared.remove(&token);
    worker.set_alarm(token, None);
    if let Some(attempt) = worker.attempts.remove(&token) {
        let runtime = attempt.runtime();
        worker.effects.push(Effect::Forget { token, runtime, give_up_output: true });
    }
    worker.outbox.released(token, cause, why);
}

/// Reports up to this number are durable.
pub(crate) fn on_acknowledge(worker: &mut Worker, now: Uptime, last: ReportNo) {
    let mut entries = Vec::new();
    worker.outbox.acknowledge(last, |entry| entries.extend(acknowledged_entry(entry)));
    apply_acknowledged(worker, now, entries);
}

/// Handles the acknowledged number in Welcome. Final reports of attempts that only wait for their output are
/// repeated, because the server's store may have been restored from a backup.
pub(crate) fn resume_reports(worker: &mut Worker, now: Uptime, last: ReportNo) {
    let mut entries = Vec::new();
    worker.outbox.resume(last, |entry| entries.extend(acknowledged_entry(entry)));
    apply_acknowledged(worker, now, entries);
    for attempt in worker.attempts.values_mut() {
        if let Stage::Ended(ended) = &mut attempt.stage
            && let Some(entry) = ended.final_entry.take()
        {
            ended.acknowledged = false;
            // Its outcome is not durable any more.
            if let Some(number) = ended.unsent.take() {
                worker.unsent_output.remove(number);
            }
            worker.outbox.repeat(*entry);
        }
    }
}

/// The output of an attempt is durable or was given up.
pub(crate) fn on_output_done(worker: &mut Worker, token: Token) {
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

/// The disk for unsent output is nearly full, or has room again. Attempts that only wait for their output get
/// a shorter timeout, also if there is room again later.
pub(crate) fn on_disk_is_low(worker: &mut Worker, now: Uptime, is_low: bool) {
    let was_low = mem::replace(&mut worker.disk_is_low, is_low);
    if was_low || !is_low {
        return;
    }
    let by = now + LOW_DISK_OUTPUT_TIMEOUT;
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

/// Effect of an acknowledgement.
enum AcknowledgedEntry {
    Final(Token, Box<Entry>),
    Starting(Token),
}

fn acknowledged_entry(entry: Entry) -> Option<AcknowledgedEntry> {
    match entry {
        Entry::Starting { token } => Some(AcknowledgedEntry::Starting(token)),
        _ => entry.final_token().map(|token| AcknowledgedEntry::Final(token, Box::new(entry))),
    }
}

fn apply_acknowledged(worker: &mut Worker, now: Uptime, entries: Vec<AcknowledgedEntry>) {
    for entry in entries {
        match entry {
            AcknowledgedEntry::Final(token, entry) => record_final_acknowledgement(worker, now, token, entry),
            AcknowledgedEntry::Starting(token) => clear_to_start(worker, token),
        }
    }
}

fn record_final_acknowledgement(worker: &mut Worker, now: Uptime, token: Token, entry: Box<Entry>) {
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
    ended.final_entry = Some(entry);
    if ended.unsent.is_none() {
        ended.unsent = Some(worker.unsent_output.add(token, ended.output));
    }
    if attempt.alarm.is_none() {
        let timeout = if worker.disk_is_low { LOW_DISK_OUTPUT_TIMEOUT } else { OUTPUT_TIMEOUT };
        worker.set_alarm(token, Some(now + timeout));
    }
    while let Some(oldest) = worker.unsent_output.excess() {
        worker.forget(oldest);
    }
}

/// The server has stored that this attempt is about to start; it is launched when the gate is open.
fn clear_to_start(worker: &mut Worker, token: Token) {
    if let Some(attempt) = worker.attempts.get_mut(&token)
        && let Stage::AwaitingStartAck { cleared } = &mut attempt.stage
    {
        *cleared = true;
        worker.cleared.insert(token);
    }
}

/// Time for which an ended attempt keeps its output for the server (docs/design/worker-and-docker.md).
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(600);
/// The same while the disk is nearly full: enough for a server that reads output.
const LOW_DISK_OUTPUT_TIMEOUT: Duration = Duration::from_secs(30);
