//! An attempt is stopped: by the server, by its timeout, by us. The cause recorded first stays.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Cancel, StopCause};
use protocol::report::{OutputLengths, Phase, ReleaseCause};
use protocol::{Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage, Stop};
use crate::classify;
use crate::on::end;
use crate::slots;
use crate::step::{Effect, StopStep};
use crate::worker::Worker;

/// The server wants it stopped.
pub(crate) fn cancel(worker: &mut Worker, now: Uptime, cancel: Cancel) {
    let Some(attempt) = worker.attempts.get(&cancel.token) else {
        return not_ours(worker, &cancel);
    };
    let phase = attempt.phase();
    match phase {
        _ if attempt.is_unstarted() => end_unstarted(worker, now, cancel.token, cancel.cause),
        _ if attempt.is_live() && attempt.stop.is_none() => {
            ask(worker, now, cancel.token, cancel.cause, cancel.grace)
        }
        _ => worker.notices.status.push((cancel.token, phase)),
    }
}

/// It is a container that another worker has left, or nothing that we know of.
fn not_ours(worker: &mut Worker, cancel: &Cancel) {
    let is_foreign = worker.foreign.iter().any(|foreign| foreign.token == cancel.token);
    if is_foreign && cancel.cause == StopCause::Superseded {
        worker.effects.push(Effect::Evict(cancel.token));
    } else {
        worker.notices.status.push((cancel.token, Phase::Unknown));
    }
}

/// The server wants these back if they are unstarted.
pub(crate) fn recall(worker: &mut Worker, tokens: Vec<Token>) {
    for token in tokens {
        let phase = worker.attempts.get(&token).map_or(Phase::Unknown, |attempt| attempt.phase());
        match phase {
            Phase::Backlog => worker.release(token, ReleaseCause::Recalled, String::new()),
            _ => worker.notices.status.push((token, phase)),
        }
    }
}

/// The server says that another attempt has taken its place, or that it never was one.
pub(crate) fn supersede(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    if attempt.is_unstarted() {
        end_unstarted(worker, now, token, StopCause::Superseded);
    } else if attempt.is_live() && attempt.stop.is_none() {
        ask(worker, now, token, StopCause::Superseded, None);
    }
}

/// Its runtime has seen that it still runs, and its deadline was long ago: our own alarm has not stopped it. That goes by the clock on the
/// wall, which may have been set; where we have counted its time ourselves, that decides (DESIGN.md section 2).
pub(crate) fn overdue(worker: &mut Worker, now: Uptime, token: Token) {
    let is_due = |attempt: &Attempt| match (&attempt.stage, attempt.time_left) {
        (Stage::Running { at, .. }, Some(time_left)) => *at + time_left <= now,
        _ => attempt.is_live(),
    };
    if worker.attempts.get(&token).is_some_and(|attempt| is_due(attempt) && attempt.stop.is_none()) {
        ask(worker, now, token, StopCause::Timeout, None);
    }
}

/// The first rung of the kill ladder.
pub(crate) fn ask(worker: &mut Worker, now: Uptime, token: Token, cause: StopCause, grace: Option<Duration>) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let grace = grace.unwrap_or_else(|| attempt.stop_grace());
    let rung = StopStep::Ask { grace };
    attempt.stop = Some(Stop { cause, at: now, rung });
    let runtime = attempt.runtime();
    worker.prepared.remove(&token);
    worker.effects.push(Effect::Stop { token, runtime, cause, step: rung });
    worker.notices.progress.insert(token);
    worker.set_alarm(token, Some(slots::patience_with(grace, now)));
}

/// The rung before did not help in time.
pub(crate) fn climb(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let Some(stop) = &mut attempt.stop else {
        return;
    };
    let (rung, again) = slots::next_rung(stop.rung, now);
    stop.rung = rung;
    let cause = stop.cause;
    let runtime = attempt.runtime();
    worker.effects.push(Effect::Stop { token, runtime, cause, step: rung });
    worker.set_alarm(token, Some(again));
}

/// Nothing was created for it: it ends at once. What is not ours any more goes back, so that the server, which may have given it up
/// without knowing whether it ever ran, hears that it did not.
fn end_unstarted(worker: &mut Worker, now: Uptime, token: Token, cause: StopCause) {
    if cause == StopCause::Superseded {
        return worker.release(
            token,
            ReleaseCause::Recalled,
            String::from("not started, and not wanted any more"),
        );
    }
    worker.withdraw(token);
    let ended = Ended { acknowledged: false, told: None, output_done: true, launched: false };
    end::close(worker, token, classify::unstarted(cause), OutputLengths::default(), now, ended);
}
