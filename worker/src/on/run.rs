//! A runtime gets on with an attempt, or comes and goes itself.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::report::{Availability, Phase, ReleaseCause};
use protocol::{RuntimeKind, Token, Uptime};

use crate::attempt::Stage;
use crate::on::doubt;
use crate::worker::Worker;

/// It is pulling, or starting.
pub(crate) fn progressed(worker: &mut Worker, token: Token, phase: Phase) {
    let phase = match phase {
        Phase::Pulling { percent } => Phase::Pulling { percent: percent.map(|it| it.min(100)) },
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

/// Its container has started: the run timeout counts from there.
pub(crate) fn started(worker: &mut Worker, now: Uptime, token: Token, container: String, at: Uptime) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    if !matches!(attempt.stage, Stage::Launched(_)) {
        return;
    }
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

/// A runtime can be used, or cannot: what has not started there goes back.
pub(crate) fn availability(worker: &mut Worker, runtime: RuntimeKind, availability: Availability) {
    let Some((_, known)) = worker.config.runtimes.iter_mut().find(|(kind, _)| *kind == runtime) else {
        return;
    };
    if *known == availability {
        return;
    }
    let is_available = availability.is_available();
    *known = availability;
    worker.notices.condition = true;
    if is_available {
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
    for token in stranded {
        worker.release(token, ReleaseCause::RuntimeUnavailable);
    }
}
