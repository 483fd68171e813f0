//! Starts of attempts in their runtime.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::report::Foreign;
use protocol::{Token, Uptime};

use crate::attempt::Stage;
use crate::core::Worker;
use crate::handlers::{pull, start_failures};

/// The runtime is ready to create the container. The attempt waits for a slot if it has none, and for the gate.
pub(crate) fn on_prepared(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token).filter(|attempt| attempt.stop.is_none()) else {
        return;
    };
    match attempt.stage {
        Stage::Launched => {
            attempt.stage = Stage::Prepared;
            worker.prepared.insert(token);
        }
        Stage::Pulling { .. } => pull::record_pulled(worker, token),
        _ => {}
    }
}

/// The container has started; the run timeout counts from there.
pub(crate) fn on_started(worker: &mut Worker, now: Uptime, token: Token, container: String, at: Uptime) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    if !attempt.is_being_prepared() {
        return;
    }
    worker.prepared.remove(&token);
    let at = at.min(now);
    let runtime = attempt.runtime();
    if !attempt.holds_slot() {
        // A runtime asks before it starts one, but what runs takes a slot in any case.
        pull::release_slots(worker, token);
        worker.slots.take();
    }
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    attempt.stage = Stage::Running { container, at };
    if attempt.stop.is_none()
        && let Some(time_left) = attempt.time_left
    {
        worker.set_alarm(token, Some(at + time_left));
    }
    worker.notices.running.push(token);
    start_failures::record_start(worker, runtime);
}

/// The engine was searched for containers of other workers; the server may order to stop some.
pub(crate) fn on_foreign(worker: &mut Worker, foreign: Vec<Foreign>) {
    worker.notices.foreign = !foreign.is_empty();
    worker.foreign = foreign;
}
