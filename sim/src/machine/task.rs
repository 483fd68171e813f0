//! The work of the worker program for one attempt, from its image to its verdict.
//!
//! ```text
//! directory ─▶ image ─▶ the worker's permission ─▶ docker run ─▶ the CLI ends ─▶ inspect ─▶ Ended
//!                            ▲                                adopted ─▶  │ ▲
//!                            └───────── nothing was started ──────────────┘ └── it still runs: follow it
//! ```
//! The CLI is only a witness; what the engine says is believed. Until it answers, nothing is said.

use protocol::report::{OutputLengths, Phase, ReleaseCause};
use protocol::{Token, Uptime};
use worker::Input;
use worker::input::{Exit, ResultFile, RuntimeEvent, StartFailure};
use worker::step::Launch;

use super::{Ending, Kept, Stage};
use crate::agenda::Event;
use crate::docker::{CliEnd, State};
use crate::world::World;

impl World {
    pub(super) fn start_task(&mut self, no: u16, launch: Launch) {
        let token = launch.token;
        let machine = &mut self.machines[usize::from(no)];
        let is_doomed = machine.process.as_ref().is_some_and(|process| {
            process.tasks.iter().any(|it| it.launch.token == token && it.stage == Stage::Discarding)
        });
        machine.add_task(launch, if is_doomed { Stage::Waiting } else { Stage::Preparing }, None);
        if !is_doomed {
            self.prepare(no, token);
        }
    }

    /// Makes its directory: from here on the next process knows of it.
    pub(super) fn prepare(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        let Some(task) = machine.task(token) else { return };
        task.stage = Stage::Preparing;
        let launch = task.launch.clone();
        machine.directory.remove(token);
        machine.directory.attempts.push(Kept { launch, spawned: false, stopping: None, ending: None });
        self.plan_task(no, token, 1, 20);
    }

    /// The next thing is done for an attempt.
    pub(crate) fn task_goes_on(&mut self, no: u16, generation: u32, number: u32, turn: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let Some(process) = machine.process(generation) else { return };
        let Some(task) = process.tasks.iter().find(|it| it.no == number && it.turn == turn) else { return };
        let (token, stage, is_stopping) = (task.launch.token, task.stage, task.stop.is_some());
        match stage {
            Stage::Preparing | Stage::Imageless | Stage::Pulling | Stage::Prepared if is_stopping => {
                self.end_unstarted(no, token, StartFailure::Stopped)
            }
            Stage::Preparing => self.fetch_image(no, token),
            Stage::Pulling => self.pulled(no, token),
            Stage::Running => self.look_for_start(no, token),
            Stage::Settling(end) => self.settle(no, token, end),
            Stage::Discarding => self.discard(no, number),
            Stage::Waiting | Stage::Imageless | Stage::Prepared | Stage::Following | Stage::Ended => {}
        }
    }

    fn fetch_image(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        if !machine.engine.answers() || machine.has_full_disk(self.now) {
            return self.refuse(no, token, ReleaseCause::RuntimeUnavailable);
        }
        let Some(revision) = machine.task(token).map(|task| task.launch.revision) else { return };
        if !machine.dice.permille(self.workload.nature(revision).pulls) {
            return self.ask_for_word(no, token);
        }
        if let Some(task) = machine.task(token) {
            task.stage = Stage::Imageless;
        }
        self.tell_worker(no, happened(RuntimeEvent::ImageMissing(token)));
    }

    /// The state machine has a pull slot for it. What is to be stopped is not pulled for.
    pub(super) fn pull_image(&mut self, no: u16, token: Token) {
        let task = self.machines[usize::from(no)].task(token);
        let Some(task) = task.filter(|it| it.stage == Stage::Imageless && it.stop.is_none()) else { return };
        task.stage = Stage::Pulling;
        self.plan_task(no, token, 100, 20_000);
        let phase = Phase::Pulling { percent: None, failures: 0 };
        self.tell_worker(no, happened(RuntimeEvent::Progressed(token, phase)));
    }

    fn pulled(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        if !machine.engine.answers() {
            return self.refuse(no, token, ReleaseCause::RuntimeUnavailable);
        }
        let Some(revision) = machine.task(token).map(|task| task.launch.revision) else { return };
        if machine.dice.permille(self.workload.nature(revision).pull_fails) {
            return self.end_unstarted(no, token, StartFailure::Pull);
        }
        self.ask_for_word(no, token);
    }

    /// Everything is there: the worker says when to start.
    fn ask_for_word(&mut self, no: u16, token: Token) {
        if let Some(task) = self.machines[usize::from(no)].task(token) {
            task.stage = Stage::Prepared;
            self.tell_worker(no, happened(RuntimeEvent::Progressed(token, Phase::Starting)));
            self.tell_worker(no, happened(RuntimeEvent::Prepared(token)));
        }
    }

    /// The worker has said so. No container is made for an attempt that is to be stopped.
    pub(super) fn run_task(&mut self, no: u16, token: Token) {
        let task = self.machines[usize::from(no)].task(token);
        if task.is_some_and(|task| task.stage == Stage::Prepared && task.stop.is_none()) {
            self.run_cli(no, token);
        }
    }

    /// Runs the CLI.
    fn run_cli(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        let Some(membership) = machine.directory.membership else {
            return self.refuse(no, token, ReleaseCause::RuntimeUnavailable);
        };
        if let Some(kept) = machine.directory.attempt(token) {
            kept.spawned = true;
        }
        let Some(task) = machine.task(token) else { return };
        task.stage = Stage::Running;
        task.tries += 1;
        let revision = task.launch.revision;
        self.spawn_cli(no, token, membership.worker, revision);
    }

    /// The engine's events tell a start soon; where they do not, it is looked for.
    pub(crate) fn container_started(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        let late = machine.dice.permille(50);
        if machine.task(token).is_some_and(|task| task.stage == Stage::Running) {
            if late { self.plan_task(no, token, 500, 2_500) } else { self.plan_task(no, token, 0, 20) }
        }
    }

    fn look_for_start(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        if !machine.engine.answers() {
            return;
        }
        if machine.engine.container(token).is_some_and(|it| it.is_running()) {
            self.saw_start(no, token);
            self.ask_again(no, token);
        }
    }

    /// The worker hears once that the container has started.
    fn saw_start(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        let Some(container) = machine.engine.container(token) else { return };
        let (State::Running { since, .. } | State::Ended { since, .. }) = container.state else { return };
        let at = machine.clock.up(since);
        let Some(task) = machine.task(token) else { return };
        if !std::mem::replace(&mut task.started, true) {
            self.tell_worker(no, happened(RuntimeEvent::Started { token, container: String::new(), at }));
        }
    }

    /// The CLI of an attempt has ended.
    pub(crate) fn cli_ended(&mut self, no: u16, token: Token, end: CliEnd) {
        if let Some(task) = self.machines[usize::from(no)].task(token)
            && matches!(task.stage, Stage::Running | Stage::Following)
        {
            task.stage = Stage::Settling(end);
            self.plan_task(no, token, 0, 30);
        }
    }

    /// A container that is followed without a CLI has ended.
    pub(crate) fn followed_end(&mut self, no: u16, token: Token) {
        if self.machines[usize::from(no)].task(token).is_some_and(|task| task.stage == Stage::Following) {
            self.cli_ended(no, token, CliEnd::Killed);
        }
    }

    /// Finds out what became of it. If the engine does not answer, `check_health` comes here again.
    fn settle(&mut self, no: u16, token: Token, end: CliEnd) {
        let machine = &mut self.machines[usize::from(no)];
        let up = machine.clock.up(self.now);
        let found = machine.engine.container(token).cloned();
        let Some(task) = machine.task(token) else { return };
        let (started, is_stopping) = (task.started, task.stop.is_some());
        if !machine.engine.answers() {
            return;
        }
        let Some(container) = found else {
            return match end {
                _ if started => self.end_task(no, token, Exit::Vanished, up),
                CliEnd::Conflict => self.refuse(no, token, ReleaseCause::RuntimeUnavailable),
                _ if is_stopping => self.end_unstarted(no, token, StartFailure::Stopped),
                CliEnd::Code(_) => self.end_task(no, token, Exit::Vanished, up),
                CliEnd::Unreachable => self.refuse(no, token, ReleaseCause::RuntimeUnavailable),
                CliEnd::Killed => self.try_again(no, token),
            };
        };
        match container.state {
            State::Created(Some(exit)) => self.end_task(no, token, exit, up),
            State::Created(None) => {
                self.docker_remove(no, token);
                if is_stopping {
                    self.end_unstarted(no, token, StartFailure::Stopped)
                } else {
                    self.try_again(no, token)
                }
            }
            State::Running { .. } => {
                if let Some(task) = machine.task(token) {
                    task.stage = Stage::Following;
                }
                self.saw_start(no, token);
                self.ask_again(no, token);
            }
            State::Ended { since, at, code, oom, by_engine } => {
                self.saw_start(no, token);
                let machine = &mut self.machines[usize::from(no)];
                let run_time = machine.clock.up(at).since(machine.clock.up(since));
                let ended = machine.ended_at(self.now, token, at);
                let exit = if by_engine {
                    Exit::DaemonLost { message: String::new(), run_time: Some(run_time) }
                } else {
                    Exit::Ran { code, oom, run_time, result: ResultFile::Absent }
                };
                self.end_task(no, token, exit, ended);
            }
        }
    }

    fn try_again(&mut self, no: u16, token: Token) {
        let tries = self.machines[usize::from(no)].task(token).map_or(0, |task| task.tries);
        match tries {
            // An earlier process got no further, and nobody could say so until the engine answered.
            0 => self.refuse(no, token, ReleaseCause::RuntimeUnavailable),
            1..TRIES => self.ask_for_word(no, token),
            _ => self.end_unstarted(no, token, StartFailure::Host),
        }
    }

    fn end_unstarted(&mut self, no: u16, token: Token, fault: StartFailure) {
        let up = self.machines[usize::from(no)].clock.up(self.now);
        self.end_task(no, token, Exit::NotStarted { fault, code: None, message: String::new() }, up);
    }

    /// The end is put on disk, then told.
    fn end_task(&mut self, no: u16, token: Token, exit: Exit, at: Uptime) {
        let machine = &mut self.machines[usize::from(no)];
        let now = machine.clock.now(self.now);
        let written = machine.engine.container(token).map_or(0, |it| it.output);
        let Some(task) = machine.task(token) else { return };
        task.stage = Stage::Ended;
        let output = OutputLengths { stdout: if task.started { written } else { 0 }, stderr: 0 };
        let number = task.no;
        let ending = Ending { exit: exit.clone(), output, at: now.utc - now.up.since(at) };
        if let Some(kept) = machine.directory.attempt(token) {
            kept.ending = Some(ending);
        }
        if output.stdout > 0 {
            self.plan_output(no, number);
        }
        self.tell_worker(
            no,
            happened(RuntimeEvent::Ended { token, exit, output, usage: Default::default(), at }),
        );
    }

    fn refuse(&mut self, no: u16, token: Token, cause: ReleaseCause) {
        let machine = &mut self.machines[usize::from(no)];
        machine.directory.remove(token);
        if let Some(task) = machine.task(token) {
            task.stage = Stage::Ended;
        }
        self.tell_worker(no, happened(RuntimeEvent::Refused { token, cause, why: String::new() }));
    }

    pub(super) fn plan_task(&mut self, no: u16, token: Token, low: u64, high: u64) {
        let machine = &mut self.machines[usize::from(no)];
        let (at, generation) = (self.now + machine.dice.millis(low, high), machine.generation);
        if let Some(task) = machine.task(token) {
            task.turn += 1;
            self.agenda.schedule(at, Event::Task { machine: no, generation, task: task.no, turn: task.turn });
        }
    }
}

pub(super) const fn happened(event: RuntimeEvent) -> Input {
    Input::Happened(event)
}

/// How often a start is tried when nothing was started and nobody knows why.
pub(super) const TRIES: u32 = 3;
