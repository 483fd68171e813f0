//! Outages of an engine: it stops or hangs, and is back after a while.

use std::time::Duration;

use super::{Cli, CliEnd, CliStage, Condition, ContainerEnd, State};
use crate::agenda::Event;
use crate::world::World;

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
        self.agenda.schedule(self.now + lasts, Event::DockerBack { machine: no, spell });
        if condition == Condition::Down {
            if !keeps_containers {
                for container in &mut engine.containers {
                    if let State::Running { since, .. } = container.state {
                        container.turn += 1;
                        let code = 137;
                        container.state =
                            State::Ended { since, at: self.now, code, oom: false, by_engine: true };
                        let end =
                            ContainerEnd { at: self.now, code, oom: false, by_engine: true, by_us: false };
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
        let generation = machine.generation;
        self.agenda.schedule(self.now + noticed, Event::Health { machine: no, generation });
    }

    pub(crate) fn docker_back(&mut self, no: u16, spell: u32) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.engine.spell != spell || machine.engine.answers() {
            return;
        }
        machine.engine.condition = Condition::Up;
        self.oracle.troubled(self.now, no);
        self.trace.say(self.now, || format!("w{no}      engine is back"));
        self.catch_up(no);
        let machine = &mut self.machines[usize::from(no)];
        let (generation, noticed) = (machine.generation, machine.dice.millis(0, 2_000));
        self.agenda.schedule(self.now + noticed, Event::Health { machine: no, generation });
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
