//! Detects a host on which nothing starts: after three failed starts in a row of different definitions, the
//! runtime takes no jobs until a probe container has started. A broken host thus does not use up the queue.

use alloc::format;

use protocol::report::{Availability, CANNOT_START};
use protocol::wire::cut_text;
use protocol::{RuntimeKind, Token};

use crate::core::Worker;
use crate::handlers::availability;
use crate::step::Effect;

/// A start succeeded, so earlier failures were not the host's.
pub(crate) fn record_start(worker: &mut Worker, runtime: RuntimeKind) {
    worker.failed_starts.remove(&runtime);
}

/// Counts a start that failed because of the host.
pub(crate) fn record_start_failure(worker: &mut Worker, token: Token, message: &str) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    let (runtime, revision) = (attempt.runtime(), attempt.revision);
    let Some(like) = attempt.definition.as_ref().map(|definition| definition.spec.clone()) else {
        return;
    };
    if !is_available(worker, runtime) {
        return; // What was under way when it broke says nothing new.
    }
    let revisions = worker.failed_starts.entry(runtime).or_default();
    revisions.insert(revision);
    if revisions.len() < FAILURES_MAX {
        return;
    }
    worker.failed_starts.remove(&runtime);
    let mut why = format!("{CANNOT_START}three starts in a row failed and a probe is tried, last: {message}");
    cut_text(&mut why);
    worker.effects.push(Effect::Probe { like, why: why.clone() });
    availability::on_availability(worker, runtime, Availability::Unavailable(why));
}

fn is_available(worker: &Worker, runtime: RuntimeKind) -> bool {
    worker.config.runtimes.iter().any(|(kind, own)| *kind == runtime && worker.fault_of(own).is_none())
}

/// Different definitions, so that one definition which starts on no host counts once.
const FAILURES_MAX: usize = 3;
