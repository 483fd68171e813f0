//! How a server's process begins and ends.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::order::GoAway;
use protocol::{Order, SessionId};
use scheduler::ids::GroupNo;
use scheduler::input::Input;

use super::Process;
use crate::agenda::Event;
use crate::clock::Moment;
use crate::connection::{ConnectionNo, End};
use crate::disk::Group;
use crate::network::Parcel;
use crate::world::World;

impl World {
    /// A process begins: the disk is loaded under a new epoch.
    pub(crate) fn start_server(&mut self) {
        if self.server.process.is_some() {
            return;
        }
        self.server.generation += 1;
        let now = self.server.clock.now(self.now);
        self.server.ageing = self.swarm.ageing[self.server.generation as usize % 2];
        self.server.set_aside_after = self.swarm.set_aside_after[self.server.generation as usize % 2];
        let config = self.server.config(self.swarm.slice);
        let scheduler = match self.server.disk.load(now, config) {
            Ok(scheduler) => scheduler,
            Err(why) => return self.oracle.violated(self.now, "the store cannot be loaded", why),
        };
        let disk = &self.server.disk;
        let definitions = self.workload.current();
        self.trace.say(self.now, || format!("server  starts, epoch {}", disk.epoch));
        self.server.process = Some(Process {
            scheduler,
            epoch: disk.epoch,
            open: Group { definitions: definitions.clone(), ..Group::default() },
            open_effects: Vec::new(),
            in_flight: None,
            next_group: GroupNo(disk.group.0 + 1),
            inbox: VecDeque::new(),
            sessions: Vec::new(),
            sessions_given: 0,
            wake: Moment::NEVER,
            ticked: self.now,
            shutdown: None,
        });
        self.server.attentive_since = self.now;
        let disk = &self.server.disk;
        if let Some(process) = &self.server.process {
            self.oracle.server_started(self.now, &process.scheduler, disk);
        }
        // As the engine does: the definitions are known before anything is decided.
        self.decide(Input::ReplaceDefinitions(definitions));
    }

    /// `kill -9`, or a panic: the kernel closes the sockets; what was not durable is gone.
    pub(crate) fn crash_server(&mut self) {
        let back_after =
            self.server.planned_crash.take().map_or(Duration::ZERO, |(_, back_after)| back_after);
        let Some(process) = self.server.process.take() else { return };
        self.agenda.schedule(self.now + back_after, Event::ServerStart);
        self.trace.say(self.now, || "server  crashes".to_owned());
        drop(process);
        self.server.frozen = None;
        self.hang_up_all();
        self.server.generation += 1;
    }

    /// The process is told to shut down; it is back after a while.
    pub(crate) fn stop_server(&mut self, back_after: Duration) {
        let Some(process) = &mut self.server.process else { return };
        if process.shutdown.is_some() {
            return;
        }
        process.shutdown = Some(back_after);
        let sessions = process.sessions.clone();
        for (session, connection) in sessions {
            let reconnect_after = self.server.dice.millis(500, 2_500);
            let away = Order::GoAway(GoAway { reconnect_after, elsewhere: None });
            self.network.send(&mut self.agenda, self.now, connection, End::Worker, Parcel::Order(away));
            self.network.close(&mut self.agenda, self.now, connection, End::Server);
            self.hand_in(Input::Disconnected(session));
        }
        self.hand_in(Input::Tick);
    }

    /// Ends a process that shuts down, once all its answers are sent.
    pub(super) fn end_if_done(&mut self) {
        let Some(back_after) = self.server.process.as_ref().and_then(|process| process.shutdown) else {
            return;
        };
        if self.server.process.as_ref().is_some_and(|process| !process.inbox.is_empty()) {
            return;
        }
        self.trace.say(self.now, || "server  has left".to_owned());
        self.server.process = None;
        self.hang_up_all();
        self.server.generation += 1;
        self.agenda.schedule(self.now + back_after, Event::ServerStart);
    }

    /// True if a call of a worker is taken.
    pub(crate) fn server_listens(&self) -> bool {
        self.server.process.as_ref().is_some_and(|process| process.shutdown.is_none())
    }

    /// A number for a session: unique over all epochs.
    pub(crate) fn open_session(&mut self, connection: ConnectionNo) -> Option<SessionId> {
        let process = self.server.process.as_mut()?;
        process.sessions_given += 1;
        let session = SessionId((process.epoch.0 << 32) | process.sessions_given);
        process.sessions.push((session, connection));
        self.network.at_mut(connection).session = Some(session);
        Some(session)
    }

    fn hang_up_all(&mut self) {
        let generation = self.server.generation;
        for number in 0..self.network.connections.len() as u32 {
            let number = ConnectionNo(number);
            if self.network.at(number).server_generation == generation
                && self.network.is_held_by(number, End::Server)
            {
                self.network.close(&mut self.agenda, self.now, number, End::Server);
            }
        }
    }
}
