//! Performs the effects that the worker state machine has decided. A crash can come between any two effects, a freeze in front of a start.

use protocol::Report;
use worker::Effect;

use super::{Membership, PlannedFault};
use crate::agenda::Event;
use crate::connection::End;
use crate::network::Parcel;
use crate::world::World;

impl World {
    pub(crate) fn do_for_worker(&mut self, no: u16, effects: Vec<Effect>) {
        let mut effects = effects.into_iter();
        while let Some(effect) = effects.next() {
            let machine = &mut self.machines[usize::from(no)];
            if machine.process.is_none() {
                return;
            }
            match &mut machine.planned_fault {
                Some(PlannedFault::CrashAfterEffects { effects: 0, back_after }) => {
                    let back_after = *back_after;
                    self.crash_worker(no);
                    let generation = self.machines[usize::from(no)].generation;
                    return self
                        .agenda
                        .schedule(self.now + back_after, Event::WorkerStart { machine: no, generation });
                }
                Some(PlannedFault::CrashAfterEffects { effects: left, .. }) => *left -= 1,
                Some(PlannedFault::FreezeBeforeRun { lasts }) if matches!(effect, Effect::Run { .. }) => {
                    let lasts = *lasts;
                    machine.planned_fault = None;
                    if let Some(process) = &mut machine.process {
                        process.stuck.push(effect);
                        process.stuck.extend(effects);
                    }
                    return self.freeze_worker(no, lasts);
                }
                _ => {}
            }
            self.do_one(no, effect);
        }
    }

    fn do_one(&mut self, no: u16, effect: Effect) {
        self.trace.say(self.now, || format!("w{no}      does {}", crate::trace::worker_effect(&effect)));
        match effect {
            Effect::Send(report) => self.say_to_server(no, report),
            Effect::Contact(at) => {
                self.oracle.check_lease_start(self.now, no, at);
                self.machines[usize::from(no)].directory.contact = Some(at);
            }
            Effect::Start(launch) => {
                self.oracle.check_launch(
                    self.now,
                    &self.server.disk,
                    &self.machines[usize::from(no)],
                    &launch,
                );
                self.start_task(no, launch);
            }
            Effect::Pull { token, .. } => self.pull_image(no, token),
            Effect::Run { token, .. } => {
                self.oracle.check_may_start(
                    self.now,
                    &self.server.disk,
                    &self.machines[usize::from(no)],
                    token,
                );
                self.oracle.check_runs_alone(self.now, &self.machines[usize::from(no)], token);
                self.run_task(no, token);
            }
            Effect::Stop { token, cause, step, .. } => {
                self.oracle.check_stop_grace(self.now, &self.machines[usize::from(no)], token, step);
                self.stop_task(no, token, cause, step);
            }
            Effect::Forget { token, give_up_output, .. } => {
                self.oracle.check_removal(
                    self.now,
                    &self.server.disk,
                    &self.machines[usize::from(no)],
                    token,
                    give_up_output,
                );
                self.forget_task(no, token);
            }
            Effect::RemoveForeign(token) => self.remove_foreign(no, token),
            Effect::Probe { .. } => {
                let generation = self.machines[usize::from(no)].generation;
                self.probe(no, generation, 0);
            }
            Effect::Joined { cluster, worker } => {
                self.machines[usize::from(no)].directory.membership = Some(Membership { cluster, worker });
            }
            Effect::Reconnect { after, .. } => self.reconnect(no, after),
            Effect::Exit => self.exit_worker(no),
        }
    }

    fn say_to_server(&mut self, no: u16, report: Report) {
        let machine = &self.machines[usize::from(no)];
        self.oracle.worker_says(no, machine.clock.up(self.now), &report);
        if let Some(link) = machine.process.as_ref().and_then(|process| process.link) {
            self.network.send(&mut self.agenda, self.now, link, End::Server, Parcel::Report(report));
        }
    }
}
