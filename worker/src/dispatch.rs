//! [`Worker::step`] calls the handler of each input.

use core::mem;

use protocol::order::Order;
use protocol::{Now, Uptime};

use crate::core::Worker;
use crate::end_facts::EndFacts;
use crate::handlers;
use crate::input::{Input, RuntimeEvent};
use crate::step::Step;

impl Worker {
    /// Applies one input and returns immediate effects. Messages wait for [`Worker::flush`].
    pub fn step(&mut self, now: Now, input: Input) -> Step {
        let now = now.up;
        match input {
            Input::Restored { attempts, foreign, contact } => {
                handlers::restore::on_restored(self, now, attempts, foreign, contact)
            }
            Input::Connected => handlers::connect::on_connected(self, now),
            Input::Disconnected => handlers::connect::on_disconnected(self),
            Input::MessageRefused => self.outbox.message_refused(),
            Input::Ordered(order) => self.on_order(now, order),
            Input::Happened(event) => self.on_runtime_event(now, event),
            Input::OutputDone(token) => handlers::end::on_output_done(self, token),
            Input::DiskIsLow(is_low) => handlers::end::on_disk_is_low(self, now, is_low),
            Input::StorageFault(fault) => handlers::availability::on_storage_fault(self, fault),
            Input::Shutdown(mode) => handlers::shutdown::on_shutdown(self, now, mode),
            Input::Tick => handlers::tick::on_tick(self, now),
        }
        self.run_prepared(now);
        self.fill_slots(now);
        self.run_prepared(now);
        Step { effects: mem::take(&mut self.effects) }
    }

    /// Returns pending messages, packed. The caller calls it after a batch of steps and before waiting.
    pub fn flush(&mut self, now: Now) -> Step {
        if self.link.is_joined() {
            self.send_pending(now.up);
        }
        handlers::shutdown::exit_if_done(self);
        Step { effects: mem::take(&mut self.effects) }
    }

    /// Time at which the next [`Input::Tick`] is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Uptime> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        [alarm, self.link.wake_at(), handlers::tick::next_self_fence(self)].into_iter().flatten().min()
    }

    fn on_order(&mut self, now: Uptime, order: Order) {
        match order {
            Order::Welcome(it) => return handlers::connect::on_welcome(self, now, it),
            Order::Refused(it) => return handlers::connect::on_refused(self, it),
            Order::GoAway(it) => return handlers::connect::on_go_away(self, it),
            _ => {}
        }
        if !self.link.is_joined() {
            return; // Said before Welcome, or to a connection that we have given up: nobody may rely on it.
        }
        match order {
            Order::Definitions(list) | Order::ExtendedDefinitions(list) => {
                handlers::enqueue::on_definitions(self, list);
            }
            Order::Enqueue(list) => handlers::enqueue::on_enqueue(self, now, list),
            Order::Reconciled(list) => handlers::connect::on_reconciled(self, now, list),
            Order::Cancel(it) => handlers::stop::on_cancel(self, now, it),
            Order::Recall(tokens) => handlers::stop::on_recall(self, tokens),
            Order::Acknowledge(last) => handlers::end::on_acknowledge(self, now, last),
            Order::Pulse(number) => handlers::connect::on_pulse(self, number),
            Order::Configure(it) => handlers::shutdown::on_configure(self, it),
            // Output bypasses the state machine; the client has handled it.
            Order::OutputAcknowledge(_) | Order::Welcome(_) | Order::Refused(_) | Order::GoAway(_) => {}
        }
    }

    fn on_runtime_event(&mut self, now: Uptime, event: RuntimeEvent) {
        match event {
            RuntimeEvent::ImageMissing(token) => handlers::pull::on_image_missing(self, token),
            RuntimeEvent::Progressed(token, phase) => handlers::pull::on_progressed(self, token, phase),
            RuntimeEvent::Prepared(token) => handlers::run::on_prepared(self, token),
            RuntimeEvent::Started { token, container, at } => {
                handlers::run::on_started(self, now, token, container, at)
            }
            RuntimeEvent::Ended { token, exit, output, usage, at } => {
                handlers::end::on_ended(self, token, exit, EndFacts { output, usage, at })
            }
            RuntimeEvent::Overdue(token) => handlers::stop::on_overdue(self, now, token),
            RuntimeEvent::Refused { token, cause, why } => {
                handlers::end::on_start_refused(self, now, token, cause, why)
            }
            RuntimeEvent::Surveyed { attempts, foreign } => {
                handlers::restore::on_surveyed(self, now, attempts, foreign)
            }
            RuntimeEvent::Foreign(foreign) => handlers::run::on_foreign(self, foreign),
            RuntimeEvent::Availability(kind, availability) => {
                handlers::availability::on_availability(self, kind, availability)
            }
        }
    }
}
