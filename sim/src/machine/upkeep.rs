//! Maintenance of the worker program beside single attempts: it looks whether the engine answers, and brings output to the server.

use std::time::Duration;

use protocol::Token;
use worker::Input;

use super::Stage;
use crate::agenda::Event;
use crate::world::World;

impl World {
    /// The body notices that the engine is gone, or back.
    pub(crate) fn check_health(&mut self, no: u16, generation: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let answers = machine.engine.answers();
        let Some(process) = machine.process(generation) else { return };
        if answers {
            let stuck: Vec<(u32, Token)> = process.tasks.iter().map(|it| (it.no, it.launch.token)).collect();
            for (number, token) in stuck {
                self.poke_task(no, number);
                self.ask_again(no, token);
            }
        }
        let Some(process) = self.machines[usize::from(no)].process(generation) else { return };
        if process.worker.is_some() && answers && std::mem::take(&mut process.is_unlisted) {
            self.survey_again(no);
        }
        let Some(process) = self.machines[usize::from(no)].process(generation) else { return };
        if process.worker.is_some() && !process.has_unconfirmed_attempts && process.trusts_engine != answers {
            process.trusts_engine = answers;
            self.tell_availability(no, answers);
        }
    }

    /// The body notices that its disk is nearly full, is full, or has room again.
    pub(crate) fn check_room(&mut self, no: u16, generation: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let (until, full_from) = (machine.low_disk_until, machine.full_disk_from);
        let (is_low, is_full) = (self.now < until, machine.has_full_disk(self.now));
        let Some(process) = machine.process(generation).filter(|it| it.worker.is_some()) else { return };
        if process.is_short_of_room != is_low {
            process.is_short_of_room = is_low;
            self.tell_worker(no, Input::DiskIsLow(is_low));
        }
        let Some(process) = self.machines[usize::from(no)].process(generation) else { return };
        if process.knows_full_disk != is_full {
            process.knows_full_disk = is_full;
            self.tell_worker(no, Input::StorageFault(is_full.then(|| "the disk is full".into())));
        }
        if is_low {
            let next = if is_full { until } else { full_from.min(until) };
            self.agenda.schedule(next, Event::Room { machine: no, generation });
        }
    }

    /// Something like the last start is tried until it works.
    pub(crate) fn probe(&mut self, no: u16, generation: u32, tries: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let works = machine.engine.answers() && machine.engine.broken_until <= self.now;
        let Some(process) = machine.process(generation) else { return };
        process.has_unconfirmed_attempts = !works && tries > 0;
        if works && tries > 0 {
            process.trusts_engine = true;
            return self.tell_availability(no, true);
        }
        process.has_unconfirmed_attempts = true;
        let wait = Duration::from_secs((1 << tries.min(6)).min(60));
        self.agenda.schedule(self.now + wait, Event::Probe { machine: no, generation, tries: tries + 1 });
    }

    /// All output of an attempt has arrived; if there is a connection.
    pub(crate) fn output_arrives(&mut self, no: u16, generation: u32, number: u32) {
        let Some(process) = self.machines[usize::from(no)].process(generation) else { return };
        let Some(task) = process.tasks.iter().find(|it| it.no == number && it.stage == Stage::Ended) else {
            return;
        };
        let token = task.launch.token;
        if process.link.is_none() {
            return self.plan_output(no, number);
        }
        self.oracle.output_arrived(token);
        self.tell_worker(no, Input::OutputDone(token));
    }

    pub(super) fn plan_output(&mut self, no: u16, task: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let event = Event::OutputDone { machine: no, generation: machine.generation, task };
        self.agenda.schedule(self.now + machine.dice.millis(5, 3_000), event);
    }

    fn poke_task(&mut self, no: u16, number: u32) {
        let machine = &mut self.machines[usize::from(no)];
        let (at, generation) = (self.now + machine.dice.millis(0, 500), machine.generation);
        let Some(process) = &mut machine.process else { return };
        if let Some(task) = process.tasks.iter_mut().find(|it| it.no == number)
            && matches!(task.stage, Stage::Settling(_) | Stage::Discarding | Stage::Running)
        {
            task.turn += 1;
            self.agenda.schedule(at, Event::Task { machine: no, generation, task: number, turn: task.turn });
        }
    }
}
