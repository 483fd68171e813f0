//! Timers: alarms of attempts, a missing Welcome, and self-fencing.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Intervals, StopCause};
use protocol::{Token, Uptime};

use crate::attempt::Stage;
use crate::core::Worker;
use crate::handlers::{connect, stop};

/// Handles all alarms that are due.
pub(crate) fn on_tick(worker: &mut Worker, now: Uptime) {
    while let Some((at, token)) = worker.alarms.first().copied()
        && at <= now
    {
        worker.set_alarm(token, None);
        fire_alarm(worker, now, token);
    }
    if worker.link.is_welcome_overdue(now) {
        let after = worker.link.backoff();
        connect::reconnect(worker, after, None, "the server did not answer Hello".to_string());
    }
    stop_self_fenced(worker, now);
}

/// Time at which the next container must be stopped because the server is silent.
pub(crate) fn next_self_fence(worker: &Worker) -> Option<Uptime> {
    worker.armed_self_fences.iter().filter_map(|token| self_fence_at(worker, *token)).min()
}

fn fire_alarm(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    match &attempt.stage {
        Stage::Ended(ended) if ended.acknowledged => worker.forget(token),
        // The report is repeated, and the output timeout begins when it is acknowledged.
        Stage::Ended(_) => {}
        _ if attempt.stop.is_some() => stop::escalate(worker, now, token),
        _ => stop::begin_stop(worker, now, token, StopCause::Timeout, None),
    }
}

fn stop_self_fenced(worker: &mut Worker, now: Uptime) {
    let due: Vec<Token> = worker
        .armed_self_fences
        .iter()
        .copied()
        .filter(|token| self_fence_at(worker, *token).is_some_and(|at| at <= now))
        .collect();
    for token in due {
        worker.armed_self_fences.remove(&token);
        stop::begin_stop(worker, now, token, StopCause::SelfFence, None);
    }
}

/// Time at which a `self_fence` container must be stopped: early enough for its grace and for a slow engine.
fn self_fence_at(worker: &Worker, token: Token) -> Option<Uptime> {
    let attempt = worker.attempts.get(&token).filter(|attempt| attempt.stop.is_none())?;
    let Intervals { heartbeat, lease, .. } = worker.intervals();
    let notice =
        attempt.self_fence()?.saturating_sub(attempt.stop_grace().saturating_add(lease / KILL_TIME_DIVISOR));
    // While connected, not before the answer to the next heartbeat could have arrived.
    let is_joined = worker.link.is_joined();
    let answered = if is_joined { heartbeat + lease / HEARTBEAT_ANSWER_DIVISOR } else { Duration::ZERO };
    Some(worker.link.lease_from? + notice.max(answered))
}

/// The part of a lease that passes at most from the end of the grace until the engine has killed the container: a fifteenth, 2 s of 30 s.
const KILL_TIME_DIVISOR: u32 = 15;
/// The part of a lease that passes at most between a heartbeat and its answer: a tenth, 3 s of 30 s.
const HEARTBEAT_ANSWER_DIVISOR: u32 = 10;
