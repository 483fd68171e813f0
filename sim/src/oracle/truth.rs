//! The fate of each attempt's container: the engines tell, and nobody else knows.

use protocol::Token;

use super::Oracle;
use crate::clock::Moment;
use crate::docker::ContainerEnd;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    pub(super) token: Token,
    pub(super) machine: u16,
    /// How often a container of it has started.
    pub(super) runs: u8,
    pub(super) since: Moment,
    pub(super) end: Option<ContainerEnd>,
    /// Its container was removed: by us, or behind our back.
    pub(super) removed: bool,
    /// The evidence of its run was lost, and no state machine had a part in that: nobody can know that it ran.
    pub(super) unseen: bool,
    /// Its worker stood still between asking whether it may run and running it.
    pub(super) is_excused: bool,
    /// All that it wrote has arrived at the server.
    pub(super) output_arrived: bool,
    /// Its worker asked whether it may start, and was told that the server knows.
    pub(super) may_start: bool,
    /// When its worker first decided to stop it.
    pub(super) stopped: Option<Moment>,
    /// Its worker has begun to stop it because it had lost the server.
    pub(super) fenced: bool,
    /// When its worker was last told to keep it, having come back.
    pub(super) kept: Option<Moment>,
}

impl Oracle {
    pub(super) fn truth(&mut self, token: Token) -> &mut Truth {
        let index = token.fence.0 as usize;
        if index >= self.truths.len() {
            self.truths.resize(index + 1, Truth::default());
        }
        let truth = &mut self.truths[index];
        if truth.token == Token::default() {
            truth.token = token;
        }
        if truth.token == token {
            return truth;
        }
        // Its number was given a second time, by a store that had gone back in time.
        self.namesakes.entry(token).or_insert(Truth { token, ..Truth::default() })
    }

    /// True if its container runs as far as anybody could know who looked.
    pub(super) fn still_runs(&mut self, token: Token) -> bool {
        let truth = self.truth(token);
        truth.runs > 0 && truth.end.is_none()
    }

    pub(crate) fn container_ended(&mut self, token: Token, end: ContainerEnd) {
        self.truth(token).end = Some(end);
    }

    pub(crate) fn container_removed(&mut self, now: Moment, token: Token) {
        let truth = self.truth(token);
        if truth.runs > 0 && truth.end.is_none() {
            truth.end = Some(ContainerEnd { at: now, code: 137, oom: false, by_engine: false, by_us: true });
        }
        truth.removed = true;
    }

    /// Its worker, which has lost the server, stops an attempt. One that dies between deciding and doing so stops nothing.
    pub(crate) fn fences(&mut self, token: Token) {
        self.truth(token).fenced = true;
    }

    /// The knowledge of a machine about an attempt, its container or its directory, is lost behind the back of its worker.
    pub(crate) fn lost_sight(&mut self, token: Token) {
        self.truth(token).unseen = true;
    }

    pub(crate) fn output_arrived(&mut self, token: Token) {
        self.truth(token).output_arrived = true;
    }

    /// A machine is in trouble, or has just left it.
    pub(crate) fn troubled(&mut self, now: Moment, no: u16) {
        self.troubles[usize::from(no)] = now;
    }
}
