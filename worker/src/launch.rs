//! Launches attempts: order of slots, and the gate in front of each container.

use alloc::vec::Vec;

use protocol::{Token, Uptime};

use crate::attempt::Stage;
use crate::core::{Exiting, Worker};
use crate::step::{Effect, Launch};

impl Worker {
    /// Lets runtimes create prepared containers while the gate is open. The gate is checked again because a
    /// pull may take long: the lease may have expired and the attempt may have a successor. A draining worker
    /// finishes prepared attempts, too. An attempt whose predecessor is being stopped waits here as it does in the backlog.
    pub(crate) fn run_prepared(&mut self, now: Uptime) {
        if self.prepared.is_empty() || self.exit != Exiting::No || !self.link.gate_is_open(now) {
            return;
        }
        let ready = self.prepared.iter().copied().filter(|token| !self.is_earlier_one_stopping(*token));
        for token in ready.collect::<Vec<_>>() {
            self.prepared.remove(&token);
            if let Some(attempt) = self.attempts.get_mut(&token) {
                attempt.stage = Stage::Launched;
                let runtime = attempt.runtime();
                self.effects.push(Effect::Run { token, runtime });
            }
        }
    }

    /// An earlier attempt of the same job is being stopped: the server has given it up while this worker was away, and its container may take
    /// its grace. One that nobody stops belongs to another job: a server that was restored from a backup gives numbers again.
    fn is_earlier_one_stopping(&self, token: Token) -> bool {
        let first = Token { job: token.job, ..Token::default() };
        self.attempts.range(first..token).any(|(_, it)| it.is_in_runtime() && it.stop.is_some())
    }

    /// Gives free slots to attempts that have their image and to the backlog, by their order. The backlog is launched only while the gate
    /// is open and few reports are unacknowledged, and not by a worker that shuts down.
    pub(crate) fn fill_slots(&mut self, now: Uptime) {
        let launches = self.shutdown_mode().is_none()
            && self.link.gate_is_open(now)
            && self.outbox.len() < UNACKNOWLEDGED_MAX;
        while launches && let Some(token) = self.cleared.pop_first() {
            self.launch(token);
        }
        while self.slots.has_room() {
            let may_launch = |token| !self.is_earlier_one_stopping(token);
            let queued = if launches { self.backlog.first(may_launch) } else { None };
            match (self.pulls.first_ready(), queued) {
                (Some(ready), queued) if queued.is_none_or(|queued| ready < queued) => {
                    self.prepare_pulled(ready.1);
                }
                (_, Some((position, token))) => {
                    self.backlog.remove(position, token);
                    self.leave_backlog(token);
                }
                (_, None) => return,
            }
        }
    }

    /// Gives a slot to an attempt whose image was pulled.
    fn prepare_pulled(&mut self, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(&token) {
            self.pulls.remove_ready(attempt.position, token);
            self.slots.take();
            attempt.stage = Stage::Prepared;
            self.prepared.insert(token);
        }
    }

    /// Gives a slot to an attempt of the backlog, and launches it or asks the server first.
    fn leave_backlog(&mut self, token: Token) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        self.slots.take();
        if attempt.definition.as_ref().is_some_and(|definition| definition.spec.ask_before_start) {
            attempt.stage = Stage::AwaitingStartAck { cleared: false };
            self.outbox.starting(token);
        } else {
            self.launch(token);
        }
    }

    /// Hands an attempt that holds a slot to its runtime.
    fn launch(&mut self, token: Token) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return;
        };
        let Some(definition) = attempt.definition.clone() else {
            return;
        };
        attempt.stage = Stage::Launched;
        let launch = Launch {
            token,
            revision: attempt.revision,
            name: definition.name,
            spec: definition.spec,
            overrides: attempt.overrides.take(),
            time_left: attempt.time_left,
            secrets: core::mem::take(&mut attempt.secrets),
        };
        self.arm_self_fence(token);
        self.effects.push(Effect::Start(launch));
    }

    /// From here on an attempt with `self_fence` is stopped if the server is silent for too long.
    pub(crate) fn arm_self_fence(&mut self, token: Token) {
        if self.attempts.get(&token).is_some_and(|attempt| attempt.self_fence().is_some()) {
            self.armed_self_fences.insert(token);
            self.effects.extend(self.link.lease_from.map(Effect::Contact));
        }
    }
}

/// Unacknowledged reports above which the worker launches nothing more.
const UNACKNOWLEDGED_MAX: usize = 65_536;
