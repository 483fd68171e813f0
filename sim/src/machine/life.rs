//! How a worker's process begins, goes on, and ends.

use std::collections::VecDeque;

use protocol::report::Availability;
use protocol::resources::OfferedResources;
use protocol::{Incarnation, RuntimeKind};
use worker::input::{RuntimeEvent, ShutdownMode};
use worker::{Config, Input, Policy, Worker};

use super::Process;
use super::task::happened;
use crate::agenda::Event;
use crate::clock::Moment;
use crate::connection::End;
use crate::world::World;

impl World {
    /// A process begins: it asks its engine and its directories before it says a word.
    pub(crate) fn start_worker(&mut self, no: u16, generation: u32) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.generation != generation || machine.process.is_some() || machine.is_gone {
            return;
        }
        self.trace.say(self.now, || format!("w{no}      starts"));
        machine.directory.starts += 1;
        machine.process = Some(Process {
            worker: None,
            number: 0,
            link: None,
            link_no: 0,
            tasks: Vec::new(),
            tasks_given: 0,
            trusts_engine: machine.engine.answers(),
            is_unlisted: false,
            is_short_of_room: false,
            knows_full_disk: false,
            has_unconfirmed_attempts: false,
            early: VecDeque::new(),
            wake: Moment::NEVER,
            stuck: Vec::new(),
        });
        let takes = if machine.engine.answers() {
            machine.dice.millis(1, 500)
        } else {
            machine.dice.millis(100, 10_000)
        };
        self.oracle.worker_started(self.now, no, machine.slots);
        self.agenda.schedule(self.now + takes, Event::Surveyed { machine: no, generation });
    }

    /// Creates the worker state machine, once the leftovers are known.
    pub(crate) fn surveyed(&mut self, no: u16, generation: u32) {
        if self.machines[usize::from(no)].process(generation).is_none() {
            return;
        }
        let availability = if self.machines[usize::from(no)].engine.answers() {
            Availability::Available
        } else {
            Availability::Unavailable("it does not answer".into())
        };
        let first = self.survey(no);
        let machine = &mut self.machines[usize::from(no)];
        let config = Config {
            name: format!("w{no}"),
            secret: machine.directory.secret,
            cluster: machine.directory.membership.map(|it| it.cluster),
            rejoin: machine.rejoins,
            incarnation: Incarnation(machine.directory.starts),
            process: machine.dice.any(),
            engine: None,
            version: String::new(),
            slots: machine.slots,
            backlog: machine.backlog,
            pull_slots: PULL_SLOTS,
            policy: Policy::allow_all(),
            labels: vec![("zone".to_owned(), ["a", "b"][usize::from(no) % 2].to_owned())],
            // No job uses the second one. Its list is always complete, which tells nothing about the first.
            runtimes: vec![
                (RuntimeKind::Docker, availability.clone()),
                (RuntimeKind::Process, Availability::Available),
            ],
            resources: offered(no),
        };
        let (seed, number) = (machine.dice.any(), config.process);
        let Some(process) = machine.process(generation) else { return };
        process.number = number;
        process.trusts_engine = availability.is_available();
        process.is_unlisted = !availability.is_available();
        process.worker = Some(Worker::new(config, seed));
        let early = std::mem::take(&mut process.early);
        self.oracle.process_began(no, number);
        self.tell_worker(no, first);
        for input in early {
            self.tell_worker(no, input);
        }
        self.check_health(no, generation);
        self.check_room(no, generation);
        self.agenda.schedule(self.now + FIND_STRAYS_EVERY, Event::FindStrays { machine: no, generation });
    }

    /// The worker reports containers that none of its attempts has, and does so again after a while.
    pub(crate) fn find_strays(&mut self, no: u16, generation: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let answers = machine.engine.answers();
        if machine.process(generation).is_none() {
            return;
        }
        if answers {
            let foreign = self.foreign(no);
            self.tell_worker(no, happened(RuntimeEvent::Foreign(foreign)));
        }
        self.agenda.schedule(self.now + FIND_STRAYS_EVERY, Event::FindStrays { machine: no, generation });
    }

    /// An event of a worker: its state machine decides, the effects are carried out, and the reports are sent.
    pub(crate) fn tell_worker(&mut self, no: u16, input: Input) {
        let Some(process) = &mut self.machines[usize::from(no)].process else { return };
        if process.worker.is_none() {
            process.early.push_back(input);
            return;
        }
        self.step_worker(no, input);
        self.settle_worker(no);
    }

    /// Performs due timers and flushes reports, after a batch of inputs.
    pub(crate) fn settle_worker(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        let up = machine.clock.up(self.now);
        let Some(worker) = machine.process.as_mut().and_then(|process| process.worker.as_mut()) else {
            return;
        };
        if worker.wake_at().is_some_and(|at| at <= up) {
            self.step_worker(no, Input::Tick);
        }
        let machine = &mut self.machines[usize::from(no)];
        let now = machine.clock.now(self.now);
        let Some(worker) = machine.process.as_mut().and_then(|process| process.worker.as_mut()) else {
            return;
        };
        let effects = worker.flush(now).effects;
        if !effects.is_empty() {
            self.transitions += 1;
            self.trace.mix(effects.len() as u64);
        }
        self.do_for_worker(no, effects);
        self.oracle.check_launch_order(self.now, no);
        self.plan_worker(no);
    }

    pub(super) fn step_worker(&mut self, no: u16, input: Input) {
        let machine = &mut self.machines[usize::from(no)];
        let now = machine.clock.now(self.now);
        let Some(worker) = machine.process.as_mut().and_then(|process| process.worker.as_mut()) else {
            return;
        };
        self.trace.say(self.now, || format!("w{no}      hears {}", crate::trace::worker_input(&input)));
        let effects = worker.step(now, input).effects;
        if !effects.is_empty() {
            self.transitions += 1;
            self.trace.mix(effects.len() as u64);
        }
        self.oracle.worker_decided(self.now, no, worker, &effects);
        self.do_for_worker(no, effects);
    }

    /// Puts the next instant at which the state machine wants to be called on the agenda, if it is not there already.
    fn plan_worker(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        let generation = machine.generation;
        let Some(process) = &mut machine.process else { return };
        let Some(wake) = process.worker.as_ref().and_then(Worker::wake_at) else { return };
        let at = machine.clock.when_up(wake).max(self.now);
        if at < process.wake || process.wake < self.now {
            process.wake = at;
            self.agenda.schedule(at, Event::WorkerTick { machine: no, generation });
        }
    }

    pub(crate) fn worker_tick(&mut self, no: u16, generation: u32) {
        let now = self.now;
        if let Some(process) = self.machines[usize::from(no)].process(generation)
            && process.wake == now
        {
            process.wake = Moment::NEVER;
            self.settle_worker(no);
        }
    }

    pub(super) fn tell_availability(&mut self, no: u16, answers: bool) {
        let availability = if answers {
            Availability::Available
        } else {
            Availability::Unavailable("it does not answer".into())
        };
        self.tell_worker(no, happened(RuntimeEvent::Availability(RuntimeKind::Docker, availability)));
    }

    /// An operator, or the system, wants the process to shut down, and may ask again more firmly.
    pub(crate) fn shut_down_worker(
        &mut self,
        no: u16,
        mode: ShutdownMode,
        again_after: &[std::time::Duration],
    ) {
        let generation = self.machines[usize::from(no)].generation;
        self.oracle.interrupted[usize::from(no)] |= mode == ShutdownMode::Interrupt;
        // As the real client counts them: the second signal stops running jobs, the third exits at once.
        let mut at = self.now;
        for (wait, mode) in again_after.iter().zip([ShutdownMode::Interrupt, ShutdownMode::Detach]) {
            at = at + *wait;
            self.agenda.schedule(at, Event::ShutdownAgain { machine: no, generation, mode });
        }
        self.tell_worker(no, Input::Shutdown(mode));
    }

    pub(crate) fn shut_down_again(&mut self, no: u16, generation: u32, mode: ShutdownMode) {
        if self.machines[usize::from(no)].process(generation).is_some() && self.now < self.script.ends {
            self.oracle.interrupted[usize::from(no)] |= mode == ShutdownMode::Interrupt;
            self.coverage.shut_down_again(mode);
            self.tell_worker(no, Input::Shutdown(mode));
        }
    }

    /// `kill -9`: the kernel closes the socket. Directories, containers and, unless they die with it, the CLIs stay.
    pub(crate) fn crash_worker(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        machine.planned_fault = None;
        machine.frozen = None;
        let Some(process) = machine.process.take() else { return };
        machine.generation += 1;
        self.trace.say(self.now, || format!("w{no}      crashes"));
        if let Some(link) = process.link {
            self.network.close(&mut self.agenda, self.now, link, End::Worker);
        }
        if self.swarm.cli_dies {
            self.kill_clis(no);
        }
    }

    /// The process ends in peace.
    pub(super) fn exit_worker(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        let Some(process) = machine.process.take() else { return };
        machine.generation += 1;
        machine.planned_fault = None;
        self.trace.say(self.now, || format!("w{no}      has left"));
        if let Some(link) = process.link {
            self.network.close(&mut self.agenda, self.now, link, End::Worker);
        }
        if self.swarm.cli_dies {
            self.kill_clis(no);
        }
        // The operator starts it again: a deploy.
        let machine = &mut self.machines[usize::from(no)];
        let (generation, back_after) = (machine.generation, machine.dice.seconds(1, 30));
        self.agenda.schedule(self.now + back_after, Event::WorkerStart { machine: no, generation });
    }
}

/// One, so that a second image often waits.
pub(crate) const PULL_SLOTS: u32 = 1;
/// As the real body does it at last; in the beginning that looks more often.
const FIND_STRAYS_EVERY: std::time::Duration = std::time::Duration::from_secs(60);

/// The offer of a machine. An idle one has enough for each definition, since any other may be gone for good or hold another member of a set.
fn offered(no: u16) -> OfferedResources {
    let gpus = [2, 1, 1][usize::from(no) % 3];
    OfferedResources {
        cpus_milli: None,
        memory_bytes: (!no.is_multiple_of(3)).then_some(160 << 20),
        gpus: (0..gpus).map(|id: u8| id.to_string()).collect(),
        custom: vec![("license".to_owned(), 1 + u32::from(no) % 2)],
    }
}
