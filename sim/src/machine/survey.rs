//! The leftovers of an earlier process of this worker: directories say what was begun, the engine says what became of it.

use protocol::ContainerSpec;
use protocol::report::{Foreign, OutputLengths};
use worker::Input;
use worker::input::{Exit, Found, Restored, ResultFile, RuntimeEvent};
use worker::step::Launch;

use super::task::{TRIES, happened};
use super::{Ending, Kept, Stage};
use crate::docker::{CliEnd, Container, State};
use crate::world::World;

impl World {
    /// Looks at everything once, and goes on watching what still runs.
    pub(super) fn survey(&mut self, no: u16) -> Input {
        let answers = self.machines[usize::from(no)].engine.answers();
        let (_, foreign) = if answers { self.list(no) } else { (Vec::new(), Vec::new()) };
        let directory = &self.machines[usize::from(no)].directory;
        let kept = if directory.membership.is_some() { directory.attempts.clone() } else { Vec::new() };
        let attempts = kept.iter().map(|kept| self.restore(no, kept, answers)).collect();
        let contact = self.machines[usize::from(no)].directory.contact;
        Input::Restored { attempts, foreign, contact }
    }

    /// The engine was silent when everything was looked at: it is asked for what no directory has told.
    pub(super) fn survey_again(&mut self, no: u16) {
        let (new, foreign) = self.list(no);
        let attempts = new.iter().map(|kept| self.restore(no, kept, true)).collect();
        self.tell_worker(no, happened(RuntimeEvent::Surveyed { attempts, foreign }));
    }

    /// The containers of the engine: a container of ours without a directory gets one again; others are foreign.
    fn list(&mut self, no: u16) -> (Vec<Kept>, Vec<Foreign>) {
        let machine = &mut self.machines[usize::from(no)];
        let (mut new, mut foreign) = (Vec::new(), Vec::new());
        let Some(membership) = machine.directory.membership else { return (new, foreign) };
        for container in machine.engine.containers.clone() {
            if container.worker != membership.worker {
                foreign.push(Foreign { worker: container.worker, token: container.token });
            } else if machine.directory.attempt(container.token).is_none() {
                let launch = launch_of(&container);
                new.push(Kept { launch, spawned: true, stopping: None, ending: None });
            }
        }
        machine.directory.attempts.extend(new.iter().cloned());
        (new, foreign)
    }

    /// The containers of others.
    pub(super) fn foreign(&self, no: u16) -> Vec<Foreign> {
        let machine = &self.machines[usize::from(no)];
        let Some(membership) = machine.directory.membership else { return Vec::new() };
        let others = machine.engine.containers.iter().filter(|it| it.worker != membership.worker);
        others.map(|it| Foreign { worker: it.worker, token: it.token }).collect()
    }

    fn restore(&mut self, no: u16, kept: &Kept, answers: bool) -> Restored {
        let found = self.watch(no, kept, answers);
        // Entries of the same clock are ordered by it, even if it was set since.
        let ended = kept.ending.as_ref().map(|ending| ending.at);
        let stopping = kept.stopping.filter(|(_, at)| ended.is_none_or(|ended| ended >= *at));
        let stopping = stopping.map(|stop| self.machines[usize::from(no)].told(self.now, stop));
        Restored { launch: kept.launch.clone(), stopping, found }
    }

    fn watch(&mut self, no: u16, kept: &Kept, answers: bool) -> Found {
        let token = kept.launch.token;
        let found = match &kept.ending {
            Some(ending) => self.ended_before(no, ending),
            None => self.find(no, kept, answers),
        };
        let machine = &mut self.machines[usize::from(no)];
        let stage = match &found {
            Found::Unstarted => return found,
            Found::Ended { .. } => Stage::Ended,
            Found::Running { .. } | Found::Unknown if machine.engine.cli(token).is_some() => Stage::Running,
            Found::Running { .. } => Stage::Following,
            Found::Unknown => Stage::Settling(CliEnd::Killed),
        };
        machine.add_task(kept.launch.clone(), stage, kept.stopping.map(|(cause, _)| cause));
        let Some(task) = machine.task(token) else { return found };
        task.tries = if kept.spawned { TRIES } else { 0 };
        task.started = matches!(found, Found::Running { .. });
        let number = task.no;
        match &found {
            Found::Ended { output, .. } if output.stdout > 0 => self.plan_output(no, number),
            Found::Unknown => self.plan_task(no, token, 0, 500),
            _ => {}
        }
        found
    }

    fn ended_before(&self, no: u16, ending: &Ending) -> Found {
        let now = self.machines[usize::from(no)].clock.now(self.now);
        let Ending { exit, output, at } = ending.clone();
        Found::Ended { exit, output, usage: Default::default(), at: now.up - now.utc.since(at) }
    }

    fn find(&mut self, no: u16, kept: &Kept, answers: bool) -> Found {
        let token = kept.launch.token;
        let machine = &mut self.machines[usize::from(no)];
        if !answers {
            return Found::Unknown;
        }
        let has_cli = machine.engine.cli(token).is_some();
        let clock = machine.clock;
        let state = machine.engine.container(token).map(|it| (it.state.clone(), it.output));
        match state {
            Some((State::Running { since, .. }, _)) => {
                Found::Running { container: String::new(), at: clock.up(since) }
            }
            // Its CLI is about to make something of it, or will have seen its end in a moment.
            _ if has_cli => Found::Unknown,
            Some((State::Created(None), _)) => {
                self.docker_remove(no, token);
                Found::Unstarted
            }
            Some((State::Created(Some(exit)), _)) => {
                self.keep_end(no, kept, exit, OutputLengths::default(), None)
            }
            Some((State::Ended { since, at, code, oom, by_engine }, output)) => {
                let run_time = clock.up(at).since(clock.up(since));
                let exit = if by_engine {
                    Exit::DaemonLost { message: String::new(), run_time: Some(run_time) }
                } else {
                    Exit::Ran { code, oom, run_time, result: ResultFile::Absent }
                };
                let output = OutputLengths { stdout: output, stderr: 0 };
                let at = machine.ended_at(self.now, token, at);
                self.keep_end(no, kept, exit, output, Some(at))
            }
            None if !kept.spawned => Found::Unstarted,
            // A CLI was started and is gone, and so is what it made.
            None => self.keep_end(no, kept, Exit::Vanished, OutputLengths::default(), None),
        }
    }

    fn keep_end(
        &mut self,
        no: u16,
        kept: &Kept,
        exit: Exit,
        output: OutputLengths,
        at: Option<protocol::Uptime>,
    ) -> Found {
        let machine = &mut self.machines[usize::from(no)];
        let now = machine.clock.now(self.now);
        let at = at.unwrap_or(now.up);
        let ending = Ending { exit: exit.clone(), output, at: now.utc - now.up.since(at) };
        if let Some(kept) = machine.directory.attempt(kept.launch.token) {
            kept.ending = Some(ending);
        }
        Found::Ended { exit, output, usage: Default::default(), at }
    }
}

/// The token and the definition that the labels of a container name.
fn launch_of(container: &Container) -> Launch {
    Launch {
        token: container.token,
        revision: protocol::Revision::default(),
        name: "".into(),
        spec: ContainerSpec { stop_grace: STOP_GRACE, ..ContainerSpec::default() }.into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    }
}

/// For containers whose definition is not known any more: Docker's own default.
const STOP_GRACE: std::time::Duration = std::time::Duration::from_secs(10);
