//! Stopping an attempt, in whatever state its container is; and removing what is left of one about which everything is durable.

use protocol::Token;
use protocol::order::StopCause;
use worker::step::StopStep;

use super::Stage;
use crate::agenda::Event;
use crate::docker::State;
use crate::world::World;

impl World {
    /// One step of stopping it. The cause is on disk before anything is done; the one that was there first stays.
    pub(super) fn stop_task(&mut self, no: u16, token: Token, cause: StopCause, step: StopStep) {
        if cause == StopCause::SelfFence {
            self.oracle.fences(token);
        }
        let machine = &mut self.machines[usize::from(no)];
        let now = machine.clock.utc(self.now);
        let kept = machine.directory.attempt(token).map(|kept| kept.stopping.get_or_insert((cause, now)).0);
        let Some(task) = machine.task(token).filter(|task| task.stage != Stage::Ended) else { return };
        task.stop = task.stop.or(kept).or(Some(cause));
        if matches!(task.stage, Stage::Preparing | Stage::Imageless | Stage::Pulling | Stage::Prepared) {
            return self.plan_task(no, token, 0, 5);
        }
        match step {
            StopStep::Ask { grace } => {
                task.asked = Some(grace);
                self.ask_again(no, token);
            }
            StopStep::Kill if machine.engine.answers() => self.docker_kill(no, token),
            StopStep::Remove => {
                self.kill_cli(no, token);
                let engine = &self.machines[usize::from(no)].engine;
                if engine.answers() {
                    // A container that ended by itself is reported, not removed unseen.
                    if !engine.container(token).is_some_and(|it| matches!(it.state, State::Ended { .. })) {
                        self.docker_remove(no, token);
                    }
                    self.followed_end(no, token);
                }
            }
            StopStep::Kill => {}
        }
    }

    /// Asking is repeated until it helps: the container may not have been there, or the engine.
    pub(super) fn ask_again(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        if let Some(grace) = machine.task(token).and_then(|task| task.asked)
            && machine.engine.answers()
        {
            self.docker_stop(no, token, grace);
        }
    }

    /// Everything about it is durable: container and directory go, soon.
    pub(super) fn forget_task(&mut self, no: u16, token: Token) {
        let machine = &mut self.machines[usize::from(no)];
        match machine.task(token) {
            Some(task) => task.stage = Stage::Discarding,
            None => {
                // A survey found it unstarted.
                let Some(launch) = machine.directory.attempt(token).map(|kept| kept.launch.clone()) else {
                    return;
                };
                machine.add_task(launch, Stage::Discarding, None);
            }
        }
        let generation = machine.generation;
        let Some(process) = &mut machine.process else { return };
        if let Some(task) =
            process.tasks.iter_mut().rfind(|it| it.launch.token == token && it.stage == Stage::Discarding)
        {
            task.turn += 1;
            let event = Event::Task { machine: no, generation, task: task.no, turn: task.turn };
            self.agenda.schedule(self.now + machine.dice.millis(20, 60), event);
        }
    }

    /// Stops and removes what another worker has left, if the engine answers; else that is ordered again.
    pub(super) fn remove_foreign(&mut self, no: u16, token: Token) {
        let machine = &self.machines[usize::from(no)];
        let ours = machine.directory.membership.map(|it| it.worker);
        let is_anothers = machine.engine.container(token).is_some_and(|it| Some(it.worker) != ours);
        if machine.engine.answers() && is_anothers {
            self.docker_remove(no, token);
        }
    }

    pub(super) fn discard(&mut self, no: u16, number: u32) {
        let machine = &mut self.machines[usize::from(no)];
        if !machine.engine.answers() {
            return;
        }
        let Some(process) = &mut machine.process else { return };
        let Some(index) = process.tasks.iter().position(|it| it.no == number) else { return };
        let token = process.tasks.swap_remove(index).launch.token;
        machine.directory.remove(token);
        let waits = machine.task(token).is_some_and(|task| task.stage == Stage::Waiting);
        self.docker_remove(no, token);
        if waits {
            self.prepare(no, token);
        }
    }
}
