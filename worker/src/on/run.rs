//! A runtime gets on with an attempt, or comes and goes itself.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::report::{Availability, Foreign, Phase, ReleaseCause};
use protocol::{RuntimeKind, Token, Uptime};

use crate::attempt::Stage;
use crate::on::doubt;
use crate::worker::Worker;

/// It is pulling, or starting.
pub(crate) fn progressed(worker: &mut Worker, token: Token, phase: Phase) {
    let phase = match phase {
        Phase::Pulling { percent, failures } => {
            Phase::Pulling { percent: percent.map(|it| it.min(100)), failures }
        }
        Phase::Starting => phase,
        _ => return,
    };
    if let Some(attempt) = worker.attempts.get_mut(&token)
        && matches!(attempt.stage, Stage::Launched(before) if before != phase)
    {
        attempt.stage = Stage::Launched(phase);
        worker.notices.progress.insert(token);
    }
}

/// Its container can be made: as soon as the gate is open.
pub(crate) fn prepared(worker: &mut Worker, token: Token) {
    if let Some(attempt) = worker.attempts.get_mut(&token)
        && attempt.stop.is_none()
        && matches!(attempt.stage, Stage::Launched(_))
    {
        attempt.stage = Stage::Prepared;
        worker.prepared.insert(token);
    }
}

/// Its container has started: the run timeout counts from there.
pub(crate) fn started(worker: &mut Worker, now: Uptime, token: Token, container: String, at: Uptime) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    if !attempt.is_launched() {
        return;
    }
    worker.prepared.remove(&token);
    let at = at.min(now);
    let runtime = attempt.runtime();
    attempt.stage = Stage::Running { container, at };
    if attempt.stop.is_none()
        && let Some(time_left) = attempt.time_left
    {
        worker.set_alarm(token, Some(at + time_left));
    }
    worker.notices.running.push(token);
    doubt::start_worked(worker, runtime);
}

/// Somebody has looked again for containers of others: the server may want some of them to be stopped.
pub(crate) fn looked_around(worker: &mut Worker, foreign: Vec<Foreign>) {
    worker.notices.foreign = !foreign.is_empty();
    worker.foreign = foreign;
}

/// A runtime can be used, or cannot: what has not started there goes back.
pub(crate) fn availability(worker: &mut Worker, runtime: RuntimeKind, availability: Availability) {
    let Some((_, known)) = worker.config.runtimes.iter_mut().find(|(kind, _)| *kind == runtime) else {
        return;
    };
    if *known == availability {
        return;
    }
    let is_available = availability.is_available();
    *known = availability.clone();
    worker.notices.condition = true;
    if is_available {
        // What is missing in the Inventory is missing here too: now the server may conclude that.
        worker.notices.inventory |= worker.incomplete.remove(&runtime);
        return;
    }
    let stranded: Vec<Token> = worker
        .attempts
        .iter()
        .filter(|(_, attempt)| {
            attempt.is_unstarted() && attempt.known.is_some() && attempt.runtime() == runtime
        })
        .map(|(token, _)| *token)
        .collect();
    let Availability::Unavailable(why) = availability else { return };
    for token in stranded {
        worker.release(token, ReleaseCause::RuntimeUnavailable, why.clone());
    }
}
