//! Stops attempts on request of the server, at their timeout, or for the worker. The first recorded cause
//! stays.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Cancel, StopCause};
use protocol::report::{OutputLengths, Phase, ReleaseCause};
use protocol::{Token, Uptime};

use crate::attempt::{Attempt, Ended, Stage, Stop};
use crate::classify;
use crate::core::Worker;
use crate::end_facts::EndFacts;
use crate::handlers::end;
use crate::slots;
use crate::step::{Effect, StopStep};

/// The server asks to stop an attempt.
pub(crate) fn on_cancel(worker: &mut Worker, now: Uptime, cancel: Cancel) {
    let Some(attempt) = worker.attempts.get(&cancel.token) else {
        return cancel_unheld(worker, &cancel);
    };
    let phase = attempt.phase();
    match phase {
        _ if attempt.is_unstarted() => end_unstarted(worker, now, cancel.token, cancel.cause),
        _ if attempt.is_prepared_or_run() && attempt.stop.is_none() => {
            begin_stop(worker, now, cancel.token, cancel.cause, cancel.grace)
        }
        _ => worker.notices.status.push((cancel.token, phase)),
    }
}

/// The attempt is in a container of another worker, or unknown.
fn cancel_unheld(worker: &mut Worker, cancel: &Cancel) {
    let is_foreign = worker.foreign.iter().any(|foreign| foreign.token == cancel.token);
    if is_foreign && cancel.cause == StopCause::Superseded {
        worker.effects.push(Effect::RemoveForeign(cancel.token));
    } else {
        worker.notices.status.push((cancel.token, Phase::Unknown));
    }
}

/// The server recalls unstarted attempts.
pub(crate) fn on_recall(worker: &mut Worker, tokens: Vec<Token>) {
    for token in tokens {
        let phase = worker.attempts.get(&token).map_or(Phase::Unknown, |attempt| attempt.phase());
        match phase {
            Phase::Backlog => worker.release(token, ReleaseCause::Recalled, String::new()),
            _ => worker.notices.status.push((token, phase)),
        }
    }
}

/// The server says that the attempt has a successor or does not belong to this worker.
pub(crate) fn supersede(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    if attempt.is_unstarted() {
        end_unstarted(worker, now, token, StopCause::Superseded);
    } else if attempt.is_prepared_or_run() && attempt.stop.is_none() {
        begin_stop(worker, now, token, StopCause::Superseded, None);
    }
}

/// The runtime found that the attempt still runs after its deadline. The runtime uses the wall clock, which
/// may have been set; if the worker has measured the run time itself, that decides
/// (docs/design/leases-fencing-reconcile.md).
pub(crate) fn on_overdue(worker: &mut Worker, now: Uptime, token: Token) {
    let is_due = |attempt: &Attempt| match (&attempt.stage, attempt.time_left) {
        (Stage::Running { at, .. }, Some(time_left)) => *at + time_left <= now,
        _ => attempt.is_prepared_or_run(),
    };
    if worker.attempts.get(&token).is_some_and(|attempt| is_due(attempt) && attempt.stop.is_none()) {
        begin_stop(worker, now, token, StopCause::Timeout, None);
    }
}

/// Takes the first stop step.
pub(crate) fn begin_stop(
    worker: &mut Worker,
    now: Uptime,
    token: Token,
    cause: StopCause,
    grace: Option<Duration>,
) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let grace = grace.unwrap_or_else(|| attempt.stop_grace());
    let step = StopStep::Ask { grace };
    attempt.stop = Some(Stop { cause, at: now, step });
    let runtime = attempt.runtime();
    worker.prepared.remove(&token);
    worker.pulls.remove_ready(attempt.position, token);
    worker.effects.push(Effect::Stop { token, runtime, cause, step });
    worker.notices.progress.insert(token);
    worker.set_alarm(token, Some(slots::first_escalation_at(grace, now)));
}

/// Takes the next stop step, because the last one did not help in time.
pub(crate) fn escalate(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let Some(stop) = &mut attempt.stop else {
        return;
    };
    let (step, again) = slots::next_step(stop.step, now);
    stop.step = step;
    let cause = stop.cause;
    let runtime = attempt.runtime();
    worker.effects.push(Effect::Stop { token, runtime, cause, step });
    worker.set_alarm(token, Some(again));
}

/// Ends an attempt for which nothing was created. A superseded attempt is released, because the server may
/// have lost it without knowing whether it ever ran.
fn end_unstarted(worker: &mut Worker, now: Uptime, token: Token, cause: StopCause) {
    if cause == StopCause::Superseded {
        return worker.release(
            token,
            ReleaseCause::Recalled,
            String::from("not started, and not wanted any more"),
        );
    }
    let needs_removal = worker.attempts.get(&token).is_some_and(Attempt::is_in_runtime);
    worker.remove_unstarted(token);
    let output = OutputLengths::default();
    let ended = Ended {
        acknowledged: false,
        final_entry: None,
        output_done: true,
        output,
        unsent: None,
        needs_removal,
    };
    end::close(worker, token, classify::unstarted(cause), EndFacts::unknown(now), ended);
}
