//! A host where nothing starts: three starts in a row that failed for the host's sake, of different definitions, and its runtime takes
//! no jobs until a container of its own has shown that it can. A broken host never eats the queue.

use alloc::format;

use protocol::report::Availability;
use protocol::wire::cut_text;
use protocol::{RuntimeKind, Token};

use crate::on::run;
use crate::step::Effect;
use crate::worker::Worker;

/// Something started there: whatever failed before was not the host's fault.
pub(crate) fn start_worked(worker: &mut Worker, runtime: RuntimeKind) {
    worker.failed_starts.remove(&runtime);
}

/// This attempt could not be started, and that is the host's fault.
pub(crate) fn start_failed(worker: &mut Worker, token: Token, message: &str) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    let (runtime, revision) = (attempt.runtime(), attempt.revision);
    let Some(like) = attempt.known.as_ref().map(|known| known.spec.clone()) else {
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
    let mut why = format!("three starts in a row failed and a probe is tried, last: {message}");
    cut_text(&mut why);
    worker.effects.push(Effect::Probe { like, why: why.clone() });
    run::availability(worker, runtime, Availability::Unavailable(why));
}

fn is_available(worker: &Worker, runtime: RuntimeKind) -> bool {
    worker.config.runtimes.iter().any(|(kind, it)| *kind == runtime && it.is_available())
}

/// Of different definitions, so that a single one which no host could start does not count for more than itself.
const FAILURES_MAX: usize = 3;
