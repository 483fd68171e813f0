//! A machine's engine: containers, the `docker run`s that watch them, and what can go wrong with it. What is in here is the truth about
//! what ran; the state machines know of it only what the program around them reports.

mod run;

use std::time::Duration;

use protocol::{Token, WorkerId};
use worker::input::Exit;

use crate::agenda::Event;
use crate::clock::Moment;
use crate::oracle::End;
use crate::world::World;

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
    pub(crate) fn ended(&self) -> Option<(Moment, End)> {
        let State::Ended { since, at, code, oom, by_engine } = self.state else { return None };
        Some((since, End { at, code, oom, by_engine, by_us: self.is_stopped }))
    }
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

impl World {
    /// The daemon stops, or hangs; it is back after a while.
    pub(crate) fn fail_engine(
        &mut self,
        no: u16,
        condition: Condition,
        keeps_containers: bool,
        lasts: Duration,
    ) {
        let machine = &mut self.machines[usize::from(no)];
        self.oracle.troubled(self.now, no);
        let engine = &mut machine.engine;
        engine.condition = condition;
        engine.spell += 1;
        let spell = engine.spell;
        self.agenda.note(self.now + lasts, Event::EngineBack { machine: no, spell });
        if condition == Condition::Down {
            if !keeps_containers {
                for container in &mut engine.containers {
                    if let State::Running { since, .. } = container.state {
                        container.turn += 1;
                        let code = 137;
                        container.state =
                            State::Ended { since, at: self.now, code, oom: false, by_engine: true };
                        let end = End { at: self.now, code, oom: false, by_engine: true, by_us: false };
                        self.oracle.container_ended(container.token, end);
                    }
                }
            }
            // Clients that wait for a container lose their connection.
            let clis: Vec<Cli> =
                engine.clis.iter().filter(|it| it.stage == CliStage::Attached).cloned().collect();
            for cli in clis {
                self.cli_ends(no, cli.no, CliEnd::Unreachable);
            }
        }
        let machine = &mut self.machines[usize::from(no)];
        let noticed = if condition == Condition::Down {
            machine.dice.millis(0, 500)
        } else {
            machine.dice.millis(0, 15_000)
        };
        let life = machine.life;
        self.agenda.note(self.now + noticed, Event::Health { machine: no, life });
    }

    pub(crate) fn engine_back(&mut self, no: u16, spell: u32) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.engine.spell != spell || machine.engine.answers() {
            return;
        }
        machine.engine.condition = Condition::Up;
        self.oracle.troubled(self.now, no);
        self.trace.say(self.now, || format!("w{no}      engine is back"));
        self.catch_up(no);
        let machine = &mut self.machines[usize::from(no)];
        let (life, noticed) = (machine.life, machine.dice.millis(0, 2_000));
        self.agenda.note(self.now + noticed, Event::Health { machine: no, life });
    }

    /// Clients that waited for a container while its engine was away learn what they have missed.
    fn catch_up(&mut self, no: u16) {
        let engine = &self.machines[usize::from(no)].engine;
        let ended = engine.containers.iter().filter_map(|it| match it.state {
            State::Ended { code, .. } => Some((it.token, code)),
            _ => None,
        });
        for (token, code) in ended.collect::<Vec<_>>() {
            let engine = &self.machines[usize::from(no)].engine;
            match engine.cli(token).filter(|it| it.stage == CliStage::Attached).map(|it| it.no) {
                Some(cli) => self.cli_ends(no, cli, CliEnd::Code(code)),
                None => self.followed_end(no, token),
            }
        }
    }
}
