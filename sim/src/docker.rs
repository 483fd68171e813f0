//! A machine's engine: containers, the `docker run`s that watch them, and what can go wrong with it. What is in here is the truth about
//! what ran; the state machines know of it only what the program around them reports.

mod outage;
mod run;

use protocol::{Token, WorkerId};
use worker::input::Exit;

use crate::clock::Moment;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) condition: Condition,
    /// Counts outages.
    pub(crate) spell: u32,
    pub(crate) containers: Vec<Container>,
    pub(crate) clis: Vec<Cli>,
    numbered: u32,
    /// Until then nothing starts, for the host's sake.
    pub(crate) broken_until: Moment,
    /// A foreign container has the name of the next one.
    pub(crate) conflict: bool,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            condition: Condition::Up,
            spell: 0,
            containers: Vec::new(),
            clis: Vec::new(),
            numbered: 0,
            broken_until: Moment(0),
            conflict: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Up,
    /// Calls fail at once.
    Down,
    /// Calls get no answer.
    Hanging,
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) no: u32,
    /// Its label.
    pub(crate) token: Token,
    /// Its label.
    pub(crate) worker: WorkerId,
    pub(crate) state: State,
    /// The number that its present end event must have.
    turn: u32,
    ends_at: Moment,
    ignores_term: bool,
    /// Its answer to a request to stop.
    stop_code: i32,
    /// It is about to end because we have asked it to.
    is_stopped: bool,
    pub(crate) output: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Made, not started; if that failed, how.
    Created(Option<Exit>),
    Running {
        since: Moment,
        code: i32,
        oom: bool,
    },
    Ended {
        since: Moment,
        at: Moment,
        code: i32,
        oom: bool,
        by_engine: bool,
    },
}

impl Container {
    /// Since when it had run, and its end.
    pub(crate) fn ended(&self) -> Option<(Moment, ContainerEnd)> {
        let State::Ended { since, at, code, oom, by_engine } = self.state else { return None };
        Some((since, ContainerEnd { at, code, oom, by_engine, by_us: self.is_stopped }))
    }
}

/// How a container ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerEnd {
    pub(crate) at: Moment,
    pub(crate) code: i32,
    pub(crate) oom: bool,
    /// It went down with its engine.
    pub(crate) by_engine: bool,
    /// It ended because we had asked it to.
    pub(crate) by_us: bool,
}

/// A `docker run`.
#[derive(Clone, Debug)]
pub(crate) struct Cli {
    pub(crate) no: u32,
    pub(crate) token: Token,
    worker: WorkerId,
    revision: protocol::Revision,
    pub(crate) stage: CliStage,
    turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliStage {
    Creating,
    Starting,
    Attached,
}

/// How a CLI ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CliEnd {
    Code(i32),
    /// A foreign container has the name.
    Conflict,
    /// The daemon does not answer, or has hung up.
    Unreachable,
    /// It was killed, or ended who knows when.
    Killed,
}

impl Engine {
    pub(crate) fn answers(&self) -> bool {
        self.condition == Condition::Up
    }

    pub(crate) fn container(&self, token: Token) -> Option<&Container> {
        self.containers.iter().find(|it| it.token == token)
    }

    pub(crate) fn container_mut(&mut self, token: Token) -> Option<&mut Container> {
        self.containers.iter_mut().find(|it| it.token == token)
    }

    pub(crate) fn cli(&self, token: Token) -> Option<&Cli> {
        self.clis.iter().find(|it| it.token == token)
    }

    pub(crate) fn number(&mut self) -> u32 {
        self.numbered += 1;
        self.numbered
    }
}

impl Container {
    pub(crate) const fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }
}
