//! `docker run`, from the request to make a container to the end of the CLI; and how containers end.

use std::time::Duration;

use protocol::{Revision, Token, WorkerId};
use worker::input::{Exit, StartFailure};

use super::{Cli, CliEnd, CliStage, Condition, Container, ContainerEnd, State};
use crate::agenda::Event;
use crate::clock::Moment;
use crate::world::World;

impl World {
    /// The worker's body runs the CLI, in a process group of its own.
    pub(crate) fn spawn_cli(&mut self, no: u16, token: Token, worker: WorkerId, revision: Revision) {
        let machine = &mut self.machines[usize::from(no)];
        let cli = machine.engine.number();
        machine.engine.clis.push(Cli {
            no: cli,
            token,
            worker,
            revision,
            stage: CliStage::Creating,
            turn: 0,
        });
        let takes = machine.dice.millis(1, 60);
        self.agenda.schedule(self.now + takes, Event::Cli { machine: no, cli, turn: 0 });
    }

    /// A CLI gets on.
    pub(crate) fn cli_goes_on(&mut self, no: u16, cli: u32, turn: u32) {
        let now = self.now;
        let machine = &mut self.machines[usize::from(no)];
        let Some(index) = machine.engine.clis.iter().position(|it| it.no == cli && it.turn == turn) else {
            return;
        };
        match machine.engine.condition {
            Condition::Up => {}
            Condition::Down => return self.cli_ends(no, cli, CliEnd::Unreachable),
            Condition::Hanging => {
                let later = now + machine.dice.millis(500, 2_000);
                return self.agenda.schedule(later, Event::Cli { machine: no, cli, turn });
            }
        }
        let entry = machine.engine.clis[index].clone();
        match entry.stage {
            CliStage::Creating => self.create(no, &entry, index),
            CliStage::Starting => self.start(no, &entry, index),
            CliStage::Attached => {}
        }
    }

    fn create(&mut self, no: u16, cli: &Cli, index: usize) {
        let machine = &mut self.machines[usize::from(no)];
        let named = |it: &Container| (it.token.job, it.token.fence) == (cli.token.job, cli.token.fence);
        if std::mem::take(&mut machine.engine.conflict) || machine.engine.containers.iter().any(named) {
            return self.cli_ends(no, cli.no, CliEnd::Conflict);
        }
        let nature = self.workload.nature(cli.revision);
        let dice = &mut machine.dice;
        let container = Container {
            no: machine.engine.number(),
            token: cli.token,
            worker: cli.worker,
            state: State::Created(None),
            turn: 0,
            ends_at: Moment::NEVER,
            ignores_term: dice.permille(nature.ignores_term),
            stop_code: dice.pick(&[143, 143, 0, 1]),
            is_stopped: false,
            output: if dice.permille(nature.writes) { dice.between(1, 1_000) } else { 0 },
        };
        machine.engine.containers.push(container);
        let takes = machine.dice.millis(1, 300);
        let entry = &mut machine.engine.clis[index];
        (entry.stage, entry.turn) = (CliStage::Starting, entry.turn + 1);
        let event = Event::Cli { machine: no, cli: cli.no, turn: entry.turn };
        self.agenda.schedule(self.now + takes, event);
    }

    fn start(&mut self, no: u16, cli: &Cli, index: usize) {
        let now = self.now;
        let machine = &mut self.machines[usize::from(no)];
        let nature = self.workload.nature(cli.revision);
        let dice = &mut machine.dice;
        let fault = if machine.engine.broken_until > now {
            Some((StartFailure::Host, 128))
        } else if dice.permille(nature.unstartable) {
            Some((StartFailure::Definition, 127))
        } else {
            None
        };
        let (low, high) = nature.runs;
        let lasts = Duration::from_nanos(dice.between(low.as_nanos() as u64, high.as_nanos() as u64));
        let (code, oom) = match () {
            () if dice.permille(nature.ooms) => (137, true),
            () if dice.permille(nature.fails) => (dice.pick(&[1, 1, 3, 137]), false),
            () => (0, false),
        };
        // Somebody may have removed it meanwhile.
        let Some(container) = machine.engine.container_mut(cli.token) else {
            return self.cli_ends(no, cli.no, CliEnd::Killed);
        };
        if let Some((fault, code)) = fault {
            let message = String::new();
            container.state = State::Created(Some(Exit::NotStarted { fault, code: Some(code), message }));
            return self.cli_ends(no, cli.no, CliEnd::Code(code));
        }
        container.state = State::Running { since: now, code, oom };
        container.ends_at = now + lasts;
        let (number, turn) = (container.no, container.turn);
        self.trace.say(now, || format!("w{no}      container {} runs", cli.token));
        let what = (no, cli.token, cli.revision);
        self.oracle.check_run(now, &self.workload, &self.server.disk, &self.machines, what);
        self.agenda.schedule(now + lasts, Event::Exit { machine: no, container: number, turn });
        self.machines[usize::from(no)].engine.clis[index].stage = CliStage::Attached;
        self.container_started(no, cli.token);
    }

    /// A CLI ends; its waiting task gets the exit.
    pub(crate) fn cli_ends(&mut self, no: u16, cli: u32, end: CliEnd) {
        let engine = &mut self.machines[usize::from(no)].engine;
        let Some(index) = engine.clis.iter().position(|it| it.no == cli) else { return };
        let token = engine.clis.swap_remove(index).token;
        self.cli_ended(no, token, end);
    }

    /// The CLI of an attempt is killed; its container is not.
    pub(crate) fn kill_cli(&mut self, no: u16, token: Token) {
        if let Some(cli) = self.machines[usize::from(no)].engine.cli(token).map(|it| it.no) {
            self.cli_ends(no, cli, CliEnd::Killed);
        }
    }

    /// All CLIs of a machine are killed.
    pub(crate) fn kill_clis(&mut self, no: u16) {
        self.machines[usize::from(no)].engine.clis.clear();
    }

    /// A container ends, by itself or because it was told to.
    pub(crate) fn container_ends(&mut self, no: u16, number: u32, turn: u32) {
        let engine = &mut self.machines[usize::from(no)].engine;
        let Some(container) = engine.containers.iter_mut().find(|it| it.no == number && it.turn == turn)
        else {
            return;
        };
        let State::Running { since, code, oom } = container.state else { return };
        container.state = State::Ended { since, at: self.now, code, oom, by_engine: false };
        let token = container.token;
        let end = ContainerEnd { at: self.now, code, oom, by_engine: false, by_us: container.is_stopped };
        self.oracle.container_ended(token, end);
        self.trace.say(self.now, || format!("w{no}      container {token} ends with {code}"));
        let engine = &self.machines[usize::from(no)].engine;
        let attached = engine.cli(token).filter(|it| it.stage == CliStage::Attached).map(|it| it.no);
        match attached {
            // A CLI whose daemon hangs hears of it when the daemon is back.
            Some(cli) if engine.answers() => self.cli_ends(no, cli, CliEnd::Code(code)),
            Some(_) => {}
            None => self.followed_end(no, token),
        }
    }

    /// `docker stop`: asked first, killed after the grace. Whether there was anything to stop.
    pub(crate) fn docker_stop(&mut self, no: u16, token: Token, grace: Duration) -> bool {
        let machine = &mut self.machines[usize::from(no)];
        let gives_in = machine.dice.millis(1, 800);
        let Some(container) = machine.engine.container(token) else { return false };
        if container.ignores_term {
            self.end_within(no, token, grace, 137)
        } else {
            let code = container.stop_code;
            self.end_within(no, token, gives_in.min(grace), code)
        }
    }

    pub(crate) fn docker_kill(&mut self, no: u16, token: Token) {
        self.end_within(no, token, Duration::from_millis(5), 137);
    }

    /// `docker rm -f`: of a running container, its end as well.
    pub(crate) fn docker_remove(&mut self, no: u16, token: Token) {
        let engine = &mut self.machines[usize::from(no)].engine;
        let attached = engine.cli(token).filter(|it| it.stage == CliStage::Attached).map(|it| it.no);
        engine.containers.retain(|it| it.token != token);
        self.oracle.container_removed(self.now, token);
        if let Some(cli) = attached {
            self.cli_ends(no, cli, CliEnd::Code(137));
        }
    }

    /// Somebody who knows nothing of us removes a container.
    pub(crate) fn remove_behind_our_back(&mut self, no: u16, token: Token) {
        self.oracle.lost_sight(token);
        self.docker_remove(no, token);
        self.followed_end(no, token);
    }

    /// Lets a container end with this code, unless it ends by itself before. Whether it runs.
    fn end_within(&mut self, no: u16, token: Token, delay: Duration, with: i32) -> bool {
        let at = self.now + delay;
        let Some(container) = self.machines[usize::from(no)].engine.container_mut(token) else {
            return false;
        };
        let State::Running { code, oom, .. } = &mut container.state else { return false };
        if at < container.ends_at {
            (*code, *oom) = (with, false);
            container.is_stopped = true;
            (container.ends_at, container.turn) = (at, container.turn + 1);
            let event = Event::Exit { machine: no, container: container.no, turn: container.turn };
            self.agenda.schedule(at, event);
        }
        true
    }
}
