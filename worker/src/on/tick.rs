//! Time has passed: alarms of attempts, a Hello without answer, containers that must not outlive our contact with the server.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::{Token, Uptime};

use crate::attempt::Stage;
use crate::on::{connect, stop};
use crate::slots::KILL_AFTER_GRACE;
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
    match attempt.stage {
        Stage::Ended(_) => worker.forget(token),
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
        stop::ask(worker, now, token, StopCause::Superseded, None);
    }
}

/// Early enough for its grace and the kill after it.
fn self_fence_at(worker: &Worker, token: Token) -> Option<Uptime> {
    let attempt = worker.attempts.get(&token).filter(|attempt| attempt.stop.is_none())?;
    let notice = attempt.self_fence()?.saturating_sub(attempt.stop_grace() + KILL_AFTER_GRACE);
    // Never so early that an ordinary heartbeat could not have come first.
    Some(worker.link.lease_from? + notice.max(worker.intervals().heartbeat + HEARTBEAT_SLACK))
}

const HEARTBEAT_SLACK: Duration = Duration::from_secs(3);
