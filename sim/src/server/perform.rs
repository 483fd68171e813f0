//! Effects that follow a commit: answers and orders. A crash can come between any two of them.

use protocol::order::{Assignment, Definition};
use protocol::{Order, SessionId};
use scheduler::input::Input;
use scheduler::step::{Effect, Grant};

use super::CrashPoint;
use crate::connection::{ConnectionNo, End};
use crate::network::Parcel;
use crate::world::World;

impl World {
    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &mut self.server.planned_crash {
                Some((CrashPoint::AfterEffects(0), _)) => return self.crash_server(),
                Some((CrashPoint::AfterEffects(left), _)) => *left -= 1,
                _ => {}
            }
            self.perform_one(effect);
        }
    }

    fn perform_one(&mut self, effect: Effect) {
        match effect {
            Effect::Reply(ticket, answer) => self.answered(ticket, answer),
            Effect::Send(session, order) => self.send(session, order),
            Effect::Define(session, definition) => {
                let container = definition.container.clone();
                let definition =
                    Definition { revision: definition.revision, name: definition.name.clone(), container };
                self.send(session, Order::define(definition));
            }
            Effect::Enqueue(session, grants) => {
                if self.connection_of(session).is_none() {
                    self.coverage.unsent += 1;
                    return self
                        .decide(Input::Unsent(session, grants.iter().map(|grant| grant.token).collect()));
                }
                let now = self.server.clock.utc(self.now);
                let assignment = |grant: Grant| Assignment {
                    token: grant.token,
                    priority: grant.priority,
                    waited: now.since(grant.due_at),
                    revision: grant.revision,
                    overrides: None,
                    time_left: grant.time_left,
                    memory_bytes: grant.memory_bytes,
                    gpus: grant.gpus.clone(),
                    secrets: None,
                };
                self.send(session, Order::Enqueue(grants.into_iter().map(assignment).collect()));
            }
            Effect::Close(session, _) => {
                if let Some(connection) = self.connection_of(session) {
                    self.trace.say(self.now, || format!("server  closes session {session}"));
                    self.network.close(&mut self.agenda, self.now, connection, End::Server);
                    self.hand_in(Input::Disconnected(session));
                }
            }
            Effect::JobEnded(job, state) => self.oracle.told_end(self.now, &self.server.disk, job, state),
        }
    }

    fn send(&mut self, session: SessionId, order: Order) {
        let Some(connection) = self.connection_of(session) else { return };
        self.network.at_mut(connection).was_welcomed |= matches!(order, Order::Welcome(_));
        let (machine, generation) =
            (self.network.at(connection).machine, self.network.at(connection).worker_generation);
        if self.machines[usize::from(machine)].generation == generation {
            self.oracle.ordered(self.now, &self.server.disk, machine, &order);
        }
        self.trace.say(self.now, || format!("server  says to w{machine}: {}", crate::trace::order(&order)));
        self.network.send(&mut self.agenda, self.now, connection, End::Worker, Parcel::Order(order));
    }

    fn connection_of(&self, session: SessionId) -> Option<ConnectionNo> {
        let process = self.server.process.as_ref()?;
        let found = process.sessions.binary_search_by_key(&session, |(open, _)| *open).ok()?;
        Some(process.sessions[found].1)
    }
}
