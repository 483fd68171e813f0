//! The worker's end of its connection: dialling, hearing, giving up.

use std::time::Duration;

use protocol::Order;
use worker::Input;

use crate::agenda::Event;
use crate::connection::{ConnectionNo, End};
use crate::network::Parcel;
use crate::world::World;

/// How long a call may take where packets vanish.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

impl World {
    /// The worker wants a new connection, after a while.
    pub(super) fn reconnect(&mut self, no: u16, after: Duration) {
        let machine = &mut self.machines[usize::from(no)];
        let (generation, after) = (machine.generation, machine.clock.true_length(after));
        let Some(process) = &mut machine.process else { return };
        process.link_no += 1;
        let link = process.link_no;
        self.oracle.worker_lost_link(no);
        if let Some(old) = process.link.take() {
            self.network.close(&mut self.agenda, self.now, old, End::Worker);
        }
        self.agenda.schedule(self.now + after, Event::Dial { machine: no, generation, link });
    }

    pub(crate) fn dial(&mut self, no: u16, generation: u32, link: u32) {
        if !self.is_link(no, generation, link) {
            return;
        }
        if !self.network.is_open(no) {
            self.agenda.schedule(self.now + DIAL_PATIENCE, Event::NoAnswer { machine: no, generation, link });
        } else if self.server.frozen.is_some() {
            // The kernel would take the call; the upgrade gets no answer.
            self.agenda.schedule(self.now + DIAL_PATIENCE, Event::NoAnswer { machine: no, generation, link });
        } else if !self.server_listens() {
            let refused = self.network.delay();
            self.agenda.schedule(self.now + refused, Event::NoAnswer { machine: no, generation, link });
        } else {
            let connection = self.network.connect(self.now, no, generation, self.server.generation);
            if let Some(process) = self.machines[usize::from(no)].process(generation) {
                process.link = Some(connection);
            }
            self.tell_worker(no, Input::Connected);
        }
    }

    pub(crate) fn no_answer(&mut self, no: u16, generation: u32, link: u32) {
        if self.is_link(no, generation, link) {
            self.tell_worker(no, Input::Disconnected);
        }
    }

    fn is_link(&mut self, no: u16, generation: u32, link: u32) -> bool {
        let process = self.machines[usize::from(no)].process(generation);
        process.is_some_and(|process| process.link_no == link && process.link.is_none())
    }

    /// Parcels have arrived at an end of a connection.
    pub(crate) fn arrival(&mut self, connection: ConnectionNo, end: End) {
        let mut any = false;
        while let Some(parcel) = self.network.take(&mut self.agenda, self.now, connection, end) {
            any = true;
            match end {
                End::Worker => self.worker_receives(connection, parcel),
                End::Server => self.server_receives(connection, parcel),
            }
        }
        if any && end == End::Worker {
            let no = self.network.at(connection).machine;
            self.settle_worker(no);
        }
    }

    fn worker_receives(&mut self, connection: ConnectionNo, parcel: Parcel) {
        let (no, generation) = {
            let it = self.network.at(connection);
            (it.machine, it.worker_generation)
        };
        let is_ours =
            self.machines[usize::from(no)].process(generation).is_some_and(|it| it.link == Some(connection));
        if !is_ours {
            return;
        }
        let machine = &mut self.machines[usize::from(no)];
        match parcel {
            Parcel::Order(Order::Enqueue(list)) if std::mem::take(&mut machine.loses_order) => {
                machine.lost_orders.extend(list.iter().map(|it| it.token));
                self.trace.say(self.now, || format!("w{no}      loses the enqueue"));
            }
            Parcel::Order(Order::Welcome(_)) if self.now < machine.flaps_until => {
                self.network.break_off(&mut self.agenda, self.now, connection, [true, true]);
            }
            Parcel::Order(order) => {
                self.oracle.worker_hears_order(no, &order);
                self.step_worker(no, Input::Ordered(order));
            }
            Parcel::Goodbye => self.worker_loses(no, connection),
            Parcel::Report(_) => {}
        }
    }

    fn worker_loses(&mut self, no: u16, connection: ConnectionNo) {
        self.network.close(&mut self.agenda, self.now, connection, End::Worker);
        if let Some(process) = &mut self.machines[usize::from(no)].process {
            process.link = None;
        }
        self.oracle.worker_lost_link(no);
        self.tell_worker(no, Input::Disconnected);
    }

    /// An end has heard nothing for so long that it gives up.
    pub(crate) fn deaf(&mut self, connection: ConnectionNo, end: End, spell: u32) {
        if !self.network.is_deaf(connection, end, spell) {
            return;
        }
        let it = self.network.at(connection);
        let (no, generation, session) = (it.machine, it.worker_generation, it.session);
        match end {
            End::Worker
                if self.machines[usize::from(no)]
                    .process(generation)
                    .is_some_and(|it| it.link == Some(connection)) =>
            {
                self.worker_loses(no, connection);
            }
            End::Server if it.server_generation == self.server.generation => {
                self.server_loses(connection, session)
            }
            _ => self.network.leave(connection, end),
        }
    }
}
