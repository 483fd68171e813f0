//! Time has passed: alarms of attempts, a Hello without answer, containers that must not outlive our contact with the server.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Intervals, StopCause};
use protocol::{Token, Uptime};

use crate::attempt::Stage;
use crate::on::{connect, stop};
use crate::worker::Worker;

/// Does what is due.
pub(crate) fn tick(worker: &mut Worker, now: Uptime) {
    while let Some((at, token)) = worker.alarms.first().copied()
        && at <= now
    {
        worker.set_alarm(token, None);
        ring(worker, now, token);
    }
    if worker.link.is_greeting_overdue(now) {
        let after = worker.link.backoff();
        connect::reconnect(worker, after, None, "the server did not answer Hello".to_string());
    }
    fence_off(worker, now);
}

/// When the next container has to be stopped because the server is silent.
pub(crate) fn next_self_fence(worker: &Worker) -> Option<Uptime> {
    worker.fenced.iter().filter_map(|token| self_fence_at(worker, *token)).min()
}

fn ring(worker: &mut Worker, now: Uptime, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    match &attempt.stage {
        Stage::Ended(ended) if ended.acknowledged => worker.forget(token),
        // It is said once more, and our patience begins anew when that is acknowledged.
        Stage::Ended(_) => {}
        _ if attempt.stop.is_some() => stop::climb(worker, now, token),
        _ => stop::ask(worker, now, token, StopCause::Timeout, None),
    }
}

fn fence_off(worker: &mut Worker, now: Uptime) {
    let due: Vec<Token> = worker
        .fenced
        .iter()
        .copied()
        .filter(|token| self_fence_at(worker, *token).is_some_and(|at| at <= now))
        .collect();
    for token in due {
        worker.fenced.remove(&token);
        stop::ask(worker, now, token, StopCause::SelfFence, None);
    }
}

/// Early enough for its grace, and for an engine that is slow to kill.
fn self_fence_at(worker: &Worker, token: Token) -> Option<Uptime> {
    let attempt = worker.attempts.get(&token).filter(|attempt| attempt.stop.is_none())?;
    let Intervals { heartbeat, lease, .. } = worker.intervals();
    let notice =
        attempt.self_fence()?.saturating_sub(attempt.stop_grace().saturating_add(lease / KILLS_PER_LEASE));
    // While heartbeats go out, never so early that the answer to an ordinary one could not have come first.
    let is_beating = worker.link.is_joined();
    let answered = if is_beating { heartbeat + lease / ANSWERS_PER_LEASE } else { Duration::ZERO };
    Some(worker.link.lease_from? + notice.max(answered))
}

/// From the end of the grace until the engine has certainly killed it: 2 s of a lease of 30 s.
const KILLS_PER_LEASE: u32 = 15;
/// What a heartbeat may be late, and its answer take: 3 s.
const ANSWERS_PER_LEASE: u32 = 10;
