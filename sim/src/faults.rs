//! The acts of a script are done; and at its end everything is mended that a core of the world needs.

use std::time::Duration;

use protocol::{JobId, Token};
use scheduler::input::{Input, Operation};
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;

use crate::agenda::Event;
use crate::clock::Moment;
use crate::connection::End;
use crate::docker::{CliStage, Condition};
use crate::machine;
use crate::request::Command;
use crate::script::{Act, What};
use crate::server::CrashPoint;
use crate::world::{Cut, World};

impl World {
    pub(crate) fn act(&mut self) {
        let Some(act) = self.next_act() else { return };
        self.coverage.acted(act.kind());
        self.trace.say(self.now, || format!("---- {act:?}"));
        match act {
            Act::Submit(order) => self.ask(Command::Jobs(order)),
            Act::Cancel { job } => {
                if let Some(job) = self.some_job(job) {
                    self.ask(Command::Cancel(job));
                }
            }
            Act::Release { job } => {
                if let Some(job) = self.some_job(job) {
                    self.ask(Command::Release(job));
                }
            }
            Act::Operate { machine, what } => self.operate(machine, what),
            Act::Redefine { name } => {
                self.workload.redefine(name);
                let definitions = self.workload.current();
                self.hand_in_definitions(definitions);
            }
            Act::CrashServer { at, back_after } => {
                self.server.planned_crash = Some((at.unwrap_or(CrashPoint::AfterDecision), back_after));
                if at.is_none() {
                    self.crash_server();
                }
            }
            Act::FreezeServer { lasts } => self.freeze_server(lasts),
            Act::SlowServer { lasts } => self.server.slow_until = self.now + lasts,
            Act::StopServer { back_after } => self.stop_server(back_after),
            Act::StallDisk { lasts } => self.server.disk.stalled_until = self.now + lasts,
            Act::StepClock { machine, millis } => match machine {
                Some(no) => self.machines[usize::from(no)].set_clock(self.now, millis),
                None => {
                    self.server.clock.step(millis);
                    self.plan_engine();
                }
            },
            Act::Break { machine, told } => {
                for connection in self.network.of(machine) {
                    self.network.break_off(&mut self.agenda, self.now, connection, told);
                }
            }
            Act::Flap { machine, lasts } => {
                self.machines[usize::from(machine)].flaps_until = self.now + lasts;
            }
            Act::Cut { machine, ways, lasts } => self.cut(machine, ways, lasts),
            Act::CrashWorker { machine, effects, power, back_after } => {
                self.crash_soon(machine, effects, power, back_after);
            }
            Act::FreezeWorker { machine, at_start: false, lasts } => self.freeze_worker(machine, lasts),
            Act::FreezeWorker { machine, lasts, .. } => {
                self.machines[usize::from(machine)].planned_fault =
                    Some(machine::PlannedFault::FreezeBeforeRun { lasts });
            }
            Act::ShutDownWorker { machine, mode, again_after } => {
                if self.machines[usize::from(machine)].frozen.is_none() {
                    self.shut_down_worker(machine, mode, &again_after);
                }
            }
            Act::Copy { machine, onto, lasts } => self.copy_directory(machine, onto, lasts),
            Act::Stray { machine, lasts } => self.stray(machine, lasts),
            Act::Restore { kind, back_after, away } => self.back_up(kind, back_after, away),
            Act::SetBack { machine, back_after } => self.take_snapshot(machine, back_after),
            Act::Wipe { machine, keeps_identity, back_after } => {
                self.wipe(machine, keeps_identity, back_after);
            }
            Act::FailEngine { machine, condition, keeps_containers, lasts } => {
                self.fail_engine(machine, condition, keeps_containers, lasts);
            }
            Act::FillDisk { machine, lasts } => self.fill_worker_disk(machine, lasts),
            Act::StopUnmanaged { machine } => self.operate(machine, What::StopUnmanaged),
            Act::BreakHost { machine, lasts } => {
                self.machines[usize::from(machine)].engine.broken_until = self.now + lasts;
            }
            Act::Pause { name, schedule, paused, lasts } => {
                // Every other pause of a definition is one of the latest batch.
                let batch = self.server.disk.last_live_batch();
                let batch = batch.filter(|_| schedule.is_none() && self.requests.len().is_multiple_of(2));
                let target =
                    batch.map_or_else(|| self.workload.pause_target(name, schedule), PauseTarget::Batch);
                self.ask(Command::Pause(target, paused, lasts));
            }
            Act::Backfill { name, schedule, since, interval } => {
                if let Some((definition, schedule)) = self.workload.schedule(name, schedule) {
                    self.ask(Command::Backfill { definition, schedule, since, interval });
                }
            }
            Act::Conflict { machine } => self.machines[usize::from(machine)].engine.conflict = true,
            Act::LoseOrder { machine } => self.machines[usize::from(machine)].loses_order = true,
            Act::Remove { machine, container } => {
                let engine = &self.machines[usize::from(machine)].engine;
                let containers = &engine.containers;
                if engine.answers()
                    && let Some(found) = containers.get(container % containers.len().max(1))
                {
                    let token = found.token;
                    self.remove_behind_our_back(machine, token);
                }
            }
        }
    }

    /// Any job; mostly one that is with a worker, because there is most to go wrong.
    fn some_job(&self, number: u64) -> Option<JobId> {
        let held = || self.server.disk.rows().filter(|(_, row)| row.current().is_some());
        let stopping = held().filter(|(_, row)| row.latest.as_ref().is_some_and(|it| it.stopping.is_some()));
        // An earlier attempt still runs beside the current one, or while the job waits.
        let containers = self.machines.iter().flat_map(|machine| &machine.engine.containers);
        let running = containers.filter(|it| it.is_running()).map(|it| it.token);
        let is_superseded = |token: &Token| {
            let row = self.server.disk.row(token.job).filter(|row| !row.state.has_ended());
            row.is_some_and(|row| row.current() != Some(*token))
        };
        let beside = running.filter(is_superseded).map(|token| token.job);
        let beside: Vec<JobId> = beside.collect();
        let stopping: Vec<JobId> = stopping.map(|(job, _)| job).collect();
        let wanted: Vec<JobId> = match number % 4 {
            0 => Vec::new(),
            2 | 3 if !beside.is_empty() => beside,
            1 | 2 if !stopping.is_empty() => stopping,
            _ => held().map(|(job, _)| job).collect(),
        };
        if !wanted.is_empty() {
            return Some(wanted[(number / 4) as usize % wanted.len()]);
        }
        let last = self.server.disk.last_job().0;
        (last > 0).then(|| JobId(1 + number % last))
    }

    fn operate(&mut self, machine: u16, what: What) {
        let directory = &self.machines[usize::from(machine)].directory;
        // A machine that was set back may not know any more as whom it has joined.
        let known = self.server.disk.workers.values().find(|row| row.secret_hash == directory.secret);
        let known = known.map(|row| row.worker);
        let Some(worker) = known.or(directory.membership.map(|it| it.worker)) else { return };
        let operation = match what {
            What::Cordon(lasts) => {
                let until = lasts.map(|lasts| self.server.clock.utc(self.now) + lasts);
                Operation::Cordon { until, origin: Origin::default() }
            }
            What::Uncordon => Operation::Uncordon,
            What::Drain(timeout) => Operation::Drain(timeout, Origin::default()),
            What::Slots(slots) => Operation::Slots(slots),
            What::Zone(zone) => Operation::Labels(vec![("zone".to_owned(), zone.map(str::to_owned))]),
            What::Forget => Operation::Forget,
            What::StopUnmanaged => Operation::StopUnmanaged(None),
        };
        self.ask(Command::Operate(worker, operation));
    }

    fn fill_worker_disk(&mut self, no: u16, lasts: Duration) {
        let machine = &mut self.machines[usize::from(no)];
        machine.low_disk_until = machine.low_disk_until.max(self.now + lasts);
        machine.full_disk_from = self.now + lasts / 2;
        self.agenda.schedule(self.now, Event::Room { machine: no, generation: machine.generation });
    }

    fn cut(&mut self, machine: Option<u16>, ways: [bool; 2], lasts: Duration) {
        let fault = self.cuts.len() as u32;
        self.cuts.push(Some(Cut { machine, ways }));
        for no in self.cut_machines(machine) {
            for end in End::BOTH.into_iter().filter(|end| ways[*end as usize]) {
                self.network.hold(&mut self.agenda, self.now, no, end);
            }
        }
        self.agenda.schedule(self.now + lasts, Event::Mended { fault });
    }

    pub(crate) fn mended(&mut self, fault: u32) {
        let Some(Cut { machine, ways }) = self.cuts[fault as usize].take() else { return };
        for no in self.cut_machines(machine) {
            for end in End::BOTH.into_iter().filter(|end| ways[*end as usize]) {
                self.network.release(&mut self.agenda, self.now, no, end);
            }
        }
    }

    fn cut_machines(&self, machine: Option<u16>) -> std::ops::Range<u16> {
        machine.map_or(0..self.machines.len() as u16, |no| no..no + 1)
    }

    fn crash_soon(&mut self, no: u16, effects: Option<u32>, power: bool, back_after: Duration) {
        match effects {
            Some(effects) => {
                self.machines[usize::from(no)].planned_fault =
                    Some(machine::PlannedFault::CrashAfterEffects { effects, back_after });
            }
            None if power => self.lose_power(no, back_after),
            None => {
                self.crash_worker(no);
                self.start_worker_after(no, back_after);
            }
        }
    }

    fn wipe(&mut self, no: u16, keeps_identity: bool, back_after: Duration) {
        self.crash_worker(no);
        let machine = &self.machines[usize::from(no)];
        let told_of = machine.directory.attempts.iter().map(|it| it.launch.token);
        for token in told_of.chain(machine.engine.containers.iter().map(|it| it.token)).collect::<Vec<_>>() {
            self.oracle.lost_sight(token);
        }
        // A survey that looks before a command's container is there cannot know that it will be.
        let in_flight = machine.engine.clis.iter().filter(|cli| cli.stage != CliStage::Attached);
        for token in in_flight.map(|cli| cli.token).collect::<Vec<_>>() {
            self.oracle.lost_sight(token);
            self.oracle.container_removed(self.now, token);
        }
        self.machines[usize::from(no)].wipe(keeps_identity);
        if keeps_identity && self.dice.permille(300) {
            // The cleanup removes the containers, too.
            let containers = &self.machines[usize::from(no)].engine.containers;
            for token in containers.iter().map(|it| it.token).collect::<Vec<_>>() {
                self.docker_remove(no, token);
            }
        }
        self.oracle.causes_lost = true;
        self.start_worker_after(no, back_after);
    }

    /// The machine is without power for a while: nobody is told, containers are gone from memory and ended when it is back.
    fn lose_power(&mut self, no: u16, back_after: Duration) {
        if let Some(link) = self.machines[usize::from(no)].process.as_ref().and_then(|process| process.link) {
            self.network.vanish(&mut self.agenda, self.now, link, End::Worker);
        }
        self.crash_worker(no);
        self.kill_clis(no);
        self.fail_engine(no, Condition::Down, false, back_after);
        self.start_worker_after(no, back_after);
    }

    pub(crate) fn start_worker_after(&mut self, no: u16, after: Duration) {
        let generation = self.machines[usize::from(no)].generation;
        self.agenda.schedule(self.now + after, Event::WorkerStart { machine: no, generation });
    }

    fn hand_in_definitions(&mut self, definitions: Vec<std::sync::Arc<scheduler::definition::Definition>>) {
        if let Some(process) = &mut self.server.process {
            process.define(&definitions);
        }
        self.hand_in(Input::ReplaceDefinitions(definitions));
    }

    /// Faults are over. The server, at least one machine and the way between them are well; machines may be gone for good.
    pub(crate) fn heal(&mut self) {
        self.trace.say(self.now, || "---- faults are over".to_owned());
        for fault in 0..self.cuts.len() as u32 {
            self.mended(fault);
        }
        self.server.planned_crash = None;
        self.server.slow_until = Moment(0);
        self.server.disk.stalled_until = Moment(0);
        if self.server.frozen.is_some() {
            self.thaw_server(self.server.generation);
        }
        self.workload.remove_schedules();
        let definitions = self.workload.current();
        self.hand_in_definitions(definitions);
        self.start_server();
        self.agenda.schedule(self.now, Event::CheckQuiet);
        self.forget_operators();
        self.resume_jobs();
        let core = self.dice.index(self.machines.len()) as u16;
        for no in 0..self.machines.len() as u16 {
            self.machines[usize::from(no)].planned_fault = None;
            if no != core && self.dice.permille(200) {
                self.lose_for_good(no);
            } else {
                self.heal_machine(no);
            }
        }
    }

    fn lose_for_good(&mut self, no: u16) {
        self.trace.say(self.now, || format!("w{no}      is gone for good"));
        self.lose_power(no, Duration::ZERO);
        self.machines[usize::from(no)].is_gone = true;
    }

    fn heal_machine(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.directory.is_copy {
            self.remove_copy(no);
        }
        self.return_stray(no);
        let machine = &mut self.machines[usize::from(no)];
        machine.engine.broken_until = Moment(0);
        machine.engine.conflict = false;
        machine.flaps_until = Moment(0);
        machine.loses_order = false;
        let (generation, spell) = (machine.generation, machine.engine.spell);
        self.docker_back(no, spell);
        self.thaw_worker(no, generation);
        self.start_worker(no, generation);
        self.operate(no, What::Uncordon);
        self.operate(no, What::Slots(1));
        self.move_to_zone_a(no);
    }

    /// Lets every definition have a worker. A machine whose identity was lost joins as a new worker, after the faults are over.
    pub(crate) fn move_to_zone_a(&mut self, no: u16) {
        let secret = self.machines[usize::from(no)].directory.secret;
        let row = self.server.disk.workers.values().find(|row| row.secret_hash == secret);
        let in_a = ("zone".to_owned(), "a".to_owned());
        if row.is_some_and(|row| !row.labels.contains(&in_a)) {
            self.operate(no, What::Zone(Some("a")));
        }
    }

    /// A worker that was forgotten, or has joined since the state of the store that came back, is refused until somebody starts it with `--rejoin`.
    pub(crate) fn rejoin(&mut self, no: u16) {
        let machine = &mut self.machines[usize::from(no)];
        let secret = machine.directory.secret;
        let is_known = self.server.disk.workers.values().any(|row| row.secret_hash == secret);
        let is_unknown = machine.directory.membership.is_some() && !is_known;
        if is_unknown && !machine.rejoins && !machine.is_gone {
            machine.rejoins = true;
            self.crash_worker(no);
            self.start_worker_after(no, Duration::from_secs(1));
        }
    }
}
