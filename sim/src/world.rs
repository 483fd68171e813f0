//! One world: a server, machines with workers, the network between them, and true time, which goes from event to event.

use std::time::Duration;

use protocol::ClusterId;

use crate::agenda::{Agenda, Event};
use crate::backup::Backup;
use crate::clock::{Clock, Moment};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::machine::{Machine, Snapshot};
use crate::network::Network;
use crate::oracle::{Oracle, Violation};
use crate::request::Request;
use crate::script::{Act, Kind, Script};
use crate::server::Server;
use crate::swarm::Swarm;
use crate::trace::Trace;
use crate::workload::{AspectDice, Workload};

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) agenda: Agenda,
    pub(crate) swarm: Swarm,
    pub(crate) script: Script,
    next_act: usize,
    pub(crate) server: Server,
    pub(crate) machines: Vec<Machine>,
    pub(crate) network: Network,
    pub(crate) workload: Workload,
    pub(crate) requests: Vec<Request>,
    /// Network cuts by number; none once they are mended.
    pub(crate) cuts: Vec<Option<Cut>>,
    /// Disks of machines as they once were, until they are put back.
    pub(crate) snapshots: Vec<Option<Snapshot>>,
    /// States of the store, until they come back.
    pub(crate) backups: Vec<Option<Backup>>,
    /// A backup that is made as soon as something is assigned in the store.
    pub(crate) pending_backup: Option<PendingBackup>,
    pub(crate) oracle: Oracle,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) dice: Dice,
    /// Nothing is left to happen.
    pub(crate) is_over: bool,
    /// Steps of a state machine that changed something or had an effect.
    pub(crate) transitions: u64,
    /// Events that have come at the present moment.
    at_once: u32,
}

/// A cut of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The machine that is cut off; all if none is named.
    pub(crate) machine: Option<u16>,
    /// The directions that are cut, each by the [`End`](crate::connection::End) at which it arrives.
    pub(crate) ways: [bool; 2],
}

/// A backup that waits until some job is assigned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingBackup {
    /// Time from the backup to its restore.
    pub(crate) back_after: Duration,
    /// How long the server is away for the restore.
    pub(crate) away: Duration,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) transitions: u64,
    pub(crate) hash: u64,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: String,
}

impl World {
    /// The world of a seed, at its beginning.
    pub(crate) fn new(seed: u64, swarm: Swarm, script: Script, trace: bool) -> Self {
        // `dice` lists the streams.
        let stream = |number| Dice::new(seed, number);
        let mut dice = stream(10);
        let drift = |dice: &mut Dice| {
            let most = swarm.drift_ppm;
            dice.between(0, 2 * most) as i64 - most as i64
        };
        let mut clock = || Clock::new(dice.seconds(10, 1_000_000), drift(&mut dice));
        let disk = Disk::new(ClusterId(1));
        let server = Server::new(clock(), disk, stream(11));
        let machines = (0..swarm.machines)
            .map(|no| {
                let mut dice = stream(100 + no as u64);
                let slots = dice.between(1, swarm.slots_max) as u32;
                let backlog = dice.between(0, swarm.backlog_max) as u32;
                Machine::new(no as u16, clock(), slots, backlog, dice)
            })
            .collect();
        let mut world = Self {
            now: Moment(0),
            agenda: Agenda::default(),
            next_act: 0,
            server,
            machines,
            network: Network::new(swarm.machines, swarm.delay, stream(12)),
            workload: Workload::new(
                swarm.definitions,
                AspectDice {
                    nature: stream(13),
                    delays: stream(15),
                    timetables: stream(18),
                    waits: stream(29),
                    limits: stream(19),
                    hooks: stream(30),
                    sets: stream(40),
                },
            ),
            requests: Vec::new(),
            cuts: Vec::new(),
            snapshots: Vec::new(),
            backups: Vec::new(),
            pending_backup: None,
            is_over: false,
            oracle: Oracle::new(swarm.machines, swarm.acts[Kind::StepClock as usize] > 0),
            coverage: Coverage::default(),
            trace: Trace::new(trace),
            dice: stream(14),
            transitions: 0,
            at_once: 0,
            swarm,
            script,
        };
        world.agenda.schedule(Moment(0), Event::ServerStart);
        for no in 0..world.machines.len() as u16 {
            let at = Moment(0) + world.dice.millis(0, 5_000);
            world.agenda.schedule(at, Event::WorkerStart { machine: no, generation: 0 });
        }
        world.agenda.schedule(world.script.ends, Event::Heal);
        world.plan_act();
        world
    }

    /// Lets it go on until all is quiet, or something is wrong.
    pub(crate) fn run(mut self) -> Outcome {
        while self.oracle.violation.is_none()
            && !self.is_over
            && let Some((at, event)) = self.agenda.next()
        {
            self.check_time_advances(at);
            self.now = at;
            self.trace.mix(at.0);
            self.happen(event);
        }
        self.coverage.copies_confused += self.oracle.confused();
        Outcome {
            transitions: self.transitions,
            hash: self.trace.hash,
            coverage: self.coverage,
            violation: self.oracle.violation,
            trace: self.trace.into_lines(),
        }
    }

    /// Time must advance: it is a violation if events keep coming at the same moment.
    fn check_time_advances(&mut self, at: Moment) {
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        if self.at_once > AT_ONCE_MAX {
            self.oracle.violated(
                at,
                "liveness",
                "time stands still: events keep coming at the same moment".to_owned(),
            );
        }
    }

    fn happen(&mut self, event: Event) {
        if self.keep_back(event) {
            return;
        }
        match event {
            Event::Act => self.act(),
            Event::ServerEngine { generation } => self.engine_turn(generation),
            Event::Committed { generation } => self.committed(generation),
            Event::ServerStart => self.start_server(),
            Event::ServerThaw { generation } => self.thaw_server(generation),
            Event::Request { request } => self.request(request),
            Event::Arrival { connection, end } => self.arrival(connection, end),
            Event::Deaf { connection, end, spell } => self.deaf(connection, end, spell),
            Event::Dial { machine, generation, link } => self.dial(machine, generation, link),
            Event::NoAnswer { machine, generation, link } => self.no_answer(machine, generation, link),
            Event::WorkerTick { machine, generation } => self.worker_tick(machine, generation),
            Event::WorkerStart { machine, generation } => self.start_worker(machine, generation),
            Event::Surveyed { machine, generation } => self.surveyed(machine, generation),
            Event::WorkerThaw { machine, generation } => self.thaw_worker(machine, generation),
            Event::Task { machine, generation, task, turn } => {
                self.task_goes_on(machine, generation, task, turn)
            }
            Event::Health { machine, generation } => self.check_health(machine, generation),
            Event::FindStrays { machine, generation } => self.find_strays(machine, generation),
            Event::Room { machine, generation } => self.check_room(machine, generation),
            Event::Probe { machine, generation, tries } => self.probe(machine, generation, tries),
            Event::OutputDone { machine, generation, task } => self.output_arrives(machine, generation, task),
            Event::Cli { machine, cli, turn } => self.cli_goes_on(machine, cli, turn),
            Event::Exit { machine, container, turn } => self.container_ends(machine, container, turn),
            Event::DockerBack { machine, spell } => self.docker_back(machine, spell),
            Event::Mended { fault } => self.mended(fault),
            Event::CopyFound { machine } => self.remove_copy(machine),
            Event::StrayFound { machine } => self.return_stray(machine),
            Event::SetBack { snapshot } => self.set_back(snapshot),
            Event::Restore { backup } => self.restore_store(backup),
            Event::ShutdownAgain { machine, generation, mode } => {
                self.shut_down_again(machine, generation, mode)
            }
            Event::Heal => self.heal(),
            Event::CheckQuiet => self.check_quiet(),
        }
    }

    fn plan_act(&mut self) {
        if let Some((at, _)) = self.script.acts.get(self.next_act) {
            self.agenda.schedule((*at).max(self.now), Event::Act);
        }
    }

    pub(crate) fn next_act(&mut self) -> Option<Act> {
        let (_, act) = self.script.acts.get(self.next_act)?.clone();
        self.next_act += 1;
        self.plan_act();
        Some(act)
    }
}

/// More never happens at once, even where a frozen machine goes on.
const AT_ONCE_MAX: u32 = 100_000;
