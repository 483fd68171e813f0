//! Processes that stand still for a while (SIGSTOP, a paused virtual machine): what comes for them waits, what they say stops, and the
//! world goes on without them. Afterwards what has waited comes in any order, and timers may ring before sockets are read.

use std::collections::VecDeque;
use std::time::Duration;

use crate::agenda::Event;
use crate::clock::Moment;
use crate::connection::{ConnectionNo, End};
use crate::world::World;

/// The process that an event is for, if that is a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Server,
    Worker(u16),
    Nobody,
}

impl World {
    /// Keeps an event back if it is for a process that stands still. Whether it was kept.
    pub(crate) fn keep_back(&mut self, event: Event) -> bool {
        let frozen = match self.whose(event) {
            Whose::Server => self.server.frozen.as_mut(),
            Whose::Worker(no) => self.machines[usize::from(no)].frozen.as_mut(),
            Whose::Nobody => None,
        };
        frozen.map(|kept| kept.push_back(event)).is_some()
    }

    fn whose(&self, event: Event) -> Whose {
        match event {
            Event::ServerEngine { .. } | Event::Committed { .. } | Event::Request { .. } => Whose::Server,
            Event::Arrival { connection, end } | Event::Deaf { connection, end, .. } => match end {
                End::Server => Whose::Server,
                End::Worker => Whose::Worker(self.network.at(connection).machine),
            },
            Event::Dial { machine, .. }
            | Event::NoAnswer { machine, .. }
            | Event::WorkerTick { machine, .. }
            | Event::Surveyed { machine, .. }
            | Event::Task { machine, .. }
            | Event::Health { machine, .. }
            | Event::FindStrays { machine, .. }
            | Event::Room { machine, .. }
            | Event::Probe { machine, .. }
            | Event::ShutdownAgain { machine, .. }
            | Event::OutputDone { machine, .. } => Whose::Worker(machine),
            Event::Act
            | Event::ServerStart
            | Event::ServerThaw { .. }
            | Event::WorkerStart { .. }
            | Event::WorkerThaw { .. }
            | Event::Cli { .. }
            | Event::Exit { .. }
            | Event::DockerBack { .. }
            | Event::Mended { .. }
            | Event::CopyFound { .. }
            | Event::StrayFound { .. }
            | Event::SetBack { .. }
            | Event::Restore { .. }
            | Event::Heal
            | Event::CheckQuiet => Whose::Nobody,
        }
    }

    pub(crate) fn freeze_server(&mut self, lasts: Duration) {
        if self.server.process.is_none() || self.server.frozen.is_some() {
            return;
        }
        self.trace.say(self.now, || "server  stands still".to_owned());
        self.server.frozen = Some(VecDeque::new());
        (self.server.read_until, self.server.frozen_at) = (self.now, self.now);
        for connection in self.held_by_server() {
            self.network.mute(&mut self.agenda, self.now, connection, End::Worker);
        }
        let generation = self.server.generation;
        self.agenda.schedule(self.now + lasts, Event::ServerThaw { generation });
    }

    pub(crate) fn thaw_server(&mut self, generation: u32) {
        if self.server.generation != generation {
            return;
        }
        let Some(kept) = self.server.frozen.take() else { return };
        self.trace.say(self.now, || "server  goes on".to_owned());
        for connection in self.held_by_server() {
            self.network.unmute(connection, End::Worker);
        }
        if self.now.since(self.server.frozen_at) > LONG_ABSENCE {
            self.server.attentive_since = self.now;
        }
        let engine_first = self.dice.permille(500);
        if engine_first {
            self.wake_engine_again();
        } else {
            self.server.read_until = Moment::NEVER;
        }
        self.happen_in_any_order(kept);
        if !engine_first {
            self.wake_engine_again();
        }
    }

    pub(crate) fn freeze_worker(&mut self, no: u16, lasts: Duration) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.process.is_none() || machine.frozen.is_some() {
            return;
        }
        self.trace.say(self.now, || format!("w{no}      stands still"));
        machine.frozen = Some(VecDeque::new());
        let generation = machine.generation;
        if let Some(link) = machine.process.as_ref().and_then(|process| process.link) {
            self.network.mute(&mut self.agenda, self.now, link, End::Server);
        }
        self.oracle.troubled(self.now, no);
        self.agenda.schedule(self.now + lasts, Event::WorkerThaw { machine: no, generation });
    }

    pub(crate) fn thaw_worker(&mut self, no: u16, generation: u32) {
        let machine = &mut self.machines[usize::from(no)];
        if machine.process(generation).is_none() {
            return;
        }
        let Some(kept) = machine.frozen.take() else { return };
        self.trace.say(self.now, || format!("w{no}      goes on"));
        let Some(process) = machine.process(generation) else { return };
        process.wake = Moment::NEVER;
        let stuck = std::mem::take(&mut process.stuck);
        if let Some(link) = process.link {
            self.network.unmute(link, End::Server);
        }
        self.oracle.is_excused = true;
        self.do_for_worker(no, stuck);
        self.oracle.is_excused = false;
        if let Some(frozen) = &mut self.machines[usize::from(no)].frozen {
            // It stands still again, at the very same start.
            frozen.extend(kept);
            return;
        }
        let tick_first = self.dice.permille(500);
        if tick_first {
            self.settle_worker(no);
        }
        self.happen_in_any_order(kept);
        if !tick_first {
            self.settle_worker(no);
        }
        self.oracle.troubled(self.now, no);
    }

    /// The events that waited happen now, next to the others that are due.
    fn happen_in_any_order(&mut self, kept: VecDeque<Event>) {
        let mut kept = Vec::from(kept);
        while !kept.is_empty() {
            let event = kept.swap_remove(self.dice.index(kept.len()));
            if !matches!(event, Event::ServerEngine { .. } | Event::WorkerTick { .. }) {
                self.agenda.schedule(self.now, event);
            }
        }
    }

    fn held_by_server(&self) -> Vec<ConnectionNo> {
        let numbers = (0..self.network.connections.len() as u32).map(ConnectionNo);
        numbers
            .filter(|number| {
                self.network.at(*number).server_generation == self.server.generation
                    && self.network.is_held_by(*number, End::Server)
            })
            .collect()
    }
}

/// A server that was away for less can have missed nobody for a whole lease, and need not notice it.
const LONG_ABSENCE: Duration = Duration::from_secs(31);
