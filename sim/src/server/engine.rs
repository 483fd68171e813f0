//! The engine's turns: inputs are stepped into the open group, and groups are committed and their effects follow.

use scheduler::TICK_WITHIN;
use scheduler::ids::GroupNo;
use scheduler::input::Input;
use scheduler::step::{Change, CloseReason, Effect, Ended};

use super::{CrashPoint, InFlight};
use crate::agenda::Event;
use crate::clock::Moment;
use crate::connection::End;
use crate::oracle::set_aside::SetAside;
use crate::oracle::{Caller, Scene};
use crate::world::World;

impl World {
    /// Something is for the engine: it looks at it at once, or after a while if it is slow.
    pub(crate) fn hand_in(&mut self, input: Input) {
        let Some(process) = &mut self.server.process else { return };
        process.inbox.push_back(input);
        if self.server.slow_until > self.now {
            let at = self.now + self.server.dice.millis(1, 3_000);
            self.wake_engine(at);
        } else {
            self.wake_engine(self.now);
        }
    }

    /// The engine's turn: what has piled up, and what is due.
    pub(crate) fn engine_turn(&mut self, generation: u32) {
        let now = self.server.clock.now(self.now);
        let Some(process) = self.server.process.as_mut().filter(|_| self.server.generation == generation)
        else {
            return;
        };
        if process.wake != self.now {
            return;
        }
        process.wake = Moment::NEVER;
        process.scheduler.begin(process.next_group);
        let wake = process.scheduler.wake_at();
        let is_due = self.now >= process.ticked + TICK_WITHIN
            || wake.utc.is_some_and(|at| at <= now.utc)
            || wake.up.is_some_and(|at| at <= now.up);
        let tick_first = is_due && self.server.dice.permille(250);
        if tick_first {
            self.tick_engine();
        }
        while let Some(process) = &mut self.server.process
            && let Some(input) = process.inbox.pop_front()
        {
            self.decide(input);
        }
        if is_due && !tick_first {
            self.tick_engine();
        }
        self.server.read_until = Moment::NEVER;
        self.hand_over();
        self.plan_engine();
    }

    fn tick_engine(&mut self) {
        let Some(process) = &mut self.server.process else { return };
        process.ticked = self.now;
        let (clock, read_until) = (&self.server.clock, self.server.read_until);
        let asked = process.scheduler.sessions_to_check(clock.now(self.now));
        let heard = |connection| self.network.heard(self.now, connection, End::Server).min(read_until);
        let open = process.sessions.iter().filter(|(session, _)| asked.binary_search(session).is_ok());
        let heard: Vec<_> =
            open.map(|(session, connection)| (*session, clock.up(heard(*connection)))).collect();
        if !heard.is_empty() {
            self.decide(Input::SessionsActive(heard));
        }
        self.decide(Input::Tick);
    }

    /// One step of the scheduler.
    pub(super) fn decide(&mut self, input: Input) {
        let now = self.server.clock.now(self.now);
        if let Input::Disconnected(session) = input
            && let Some(process) = &mut self.server.process
        {
            process.sessions.retain(|(open, _)| *open != session);
        }
        let caller = match &input {
            Input::Connected(hello) => self.caller(hello),
            _ => Caller::default(),
        };
        let (attentive_since, drift_ppm) = (self.server.attentive_since(self.now), self.swarm.drift_ppm);
        let undisturbed_since = self.server.record_decision(self.now);
        let World { server, machines, workload, oracle, trace, .. } = self;
        let Some(process) = &mut server.process else { return };
        trace.say(self.now, || format!("server  hears {}", crate::trace::input(&input)));
        let set_aside: SetAside = process.scheduler.workers_set_aside().collect();
        oracle.set_aside.clone_from(&set_aside);
        let step = process.scheduler.step(now, input);
        oracle.check_pause_ends(self.now, now.utc, &step);
        let set_aside_now: SetAside = process.scheduler.workers_set_aside().collect();
        if set_aside_now != set_aside {
            trace.say(self.now, || format!("server  sets aside {set_aside_now:?}"));
        }
        if !step.changes.is_empty() || !step.effects.is_empty() {
            self.transitions += 1;
            trace.mix(step.changes.len() as u64 | (step.effects.len() as u64) << 32);
            for change in &step.changes {
                trace.say(self.now, || format!("server  decides {}", crate::trace::change(change)));
                match change {
                    Change::Fire(row) => self.coverage.slot_decided(row.verdict),
                    Change::Hook(row) => self.coverage.hook_decided(row),
                    _ => {}
                }
            }
            let (now, ageing) = (self.now, server.ageing);
            let scene = Scene { now, machines, attentive_since, drift_ppm, ageing };
            oracle.decided(scene, (&server.disk, workload), &process.scheduler, &step);
            oracle.check_admission(self.now, caller, &step);
            let was_committed = process.in_flight.is_none() && process.open.changes.is_empty();
            // Rows do not tell how old a job was when it was placed.
            let facts = (&server.disk, &*workload, ageing.is_none() && was_committed);
            oracle.check_set_aside(now, facts, &process.scheduler, &step);
            let is_new = |(worker, job): &(&_, &_)| set_aside.get(worker) != Some(job);
            self.coverage.workers_set_aside += set_aside_now.iter().filter(is_new).count() as u64;
            // An end that was decided and is not committed is not on the disk.
            if was_committed && step.changes.is_empty() {
                oracle.check_hello_keeps_nothing(now, undisturbed_since, (&server.disk, workload));
            }
            let shut_out =
                step.effects.iter().filter(|it| matches!(it, Effect::Close(_, CloseReason::Refused)));
            self.coverage.copies_shut_out += u64::from(shut_out.count() > 1);
        }
        let has_changes = !step.changes.is_empty();
        append(&mut process.open.changes, step.changes);
        append(&mut process.open_effects, step.effects);
        if has_changes && matches!(server.planned_crash, Some((CrashPoint::AfterDecision, _))) {
            self.crash_server();
        }
    }

    /// Closes the open group if the writer is free.
    fn hand_over(&mut self) {
        loop {
            let Some(process) = self.server.process.as_mut().filter(|it| it.in_flight.is_none()) else {
                return;
            };
            if process.open_effects.is_empty()
                && process.open.changes.is_empty()
                && process.open.definitions.is_empty()
            {
                return self.end_if_done();
            }
            let mut group = std::mem::take(&mut process.open);
            let effects = std::mem::take(&mut process.open_effects);
            if group.changes.is_empty() && group.definitions.is_empty() {
                self.perform(effects);
                continue;
            }
            (group.epoch, group.number) = (process.epoch, process.next_group);
            process.next_group = GroupNo(process.next_group.0 + 1);
            process.scheduler.begin(process.next_group);
            process.scheduler.commit_began(self.server.clock.up(self.now));
            process.in_flight = Some(InFlight { group: Some(group), effects, began: self.now });
            let done = self.now + self.server.dice.skewed(self.swarm.sync);
            let generation = self.server.generation;
            self.agenda.schedule(done, Event::Committed { generation });
            return;
        }
    }

    /// The writer is done with the group under way, or finds that it must try once more.
    pub(crate) fn committed(&mut self, generation: u32) {
        if self.server.generation != generation {
            return;
        }
        let stalled = self.server.disk.stalled_until;
        if stalled > self.now {
            // It may be durable all the same: its number tells so when it is tried again.
            if self.server.dice.permille(500) {
                self.sync();
            }
            let again = stalled + self.server.dice.millis(0, 1_000);
            self.agenda.schedule(again, Event::Committed { generation });
            return;
        }
        match self.server.planned_crash {
            Some((CrashPoint::DuringSync, _)) => return self.crash_server(),
            Some((CrashPoint::AtStoreRefusal, _)) => {
                self.refuse_group();
                return self.crash_server();
            }
            Some((CrashPoint::AfterSync, _)) => {
                self.sync();
                return self.crash_server();
            }
            _ => {}
        }
        self.sync();
        let attentive_since = self.server.attentive_since(self.now);
        let Some(process) = &mut self.server.process else { return };
        let Some(in_flight) = process.in_flight.take() else { return };
        process.scheduler.commit_ended(self.server.clock.up(self.now));
        self.server.attentive_since = attentive_since;
        self.perform(in_flight.effects);
        self.hand_over();
        self.plan_engine();
    }

    /// The store does not take the group under way.
    fn refuse_group(&mut self) {
        let in_flight = self.server.process.as_ref().and_then(|process| process.in_flight.as_ref());
        if let Some(group) = in_flight.and_then(|it| it.group.as_ref()) {
            self.trace.say(self.now, || format!("disk    refuses group {}", group.number.0));
            self.server.disk.refused = Some((group.epoch, group.number));
        }
    }

    /// The group under way becomes durable.
    fn sync(&mut self) {
        let attentive_since = self.server.attentive_since(self.now);
        let World { server, machines, oracle, coverage, trace, workload, .. } = self;
        let Some(in_flight) = server.process.as_mut().and_then(|process| process.in_flight.as_mut()) else {
            return;
        };
        let Some(group) = in_flight.group.take() else { return };
        trace.say(self.now, || format!("disk    has group {}", group.number.0));
        let (now, drift_ppm) = (self.now, self.swarm.drift_ppm);
        let scene = Scene { now, machines, attentive_since, drift_ppm, ageing: server.ageing };
        let refused = server.disk.apply(group, &mut |change, edge, rows, index| {
            coverage.moved(edge);
            if let Change::AttemptClosed { closed, .. } | Change::Ended(Ended { closed: Some(closed), .. }) =
                change
            {
                coverage.closed(closed.outcome);
            }
            let Some(row) = &rows[index] else { return };
            oracle.moved(scene, workload.definition(row.revision), change, rows, index);
        });
        if let Err(why) = refused {
            oracle.violated(now, "I3 the store would refuse a change", why);
        }
        if let Some(violation) = server.disk.hooks.take_violation() {
            oracle.violated(now, "I25 each event has its hooks", violation);
        }
        if let Some((rule, violation)) = server.disk.schedules.take_violation() {
            oracle.violated(now, rule, violation);
        }
        self.take_pending_backup();
    }

    /// Notes when the engine wants to be called, if that is not on the agenda already.
    pub(crate) fn plan_engine(&mut self) {
        let Some(process) = &self.server.process else { return };
        let clock = &self.server.clock;
        let wake = process.scheduler.wake_at();
        let by_wall = wake.utc.map(|at| clock.when_utc(at));
        let by_uptime = wake.up.map(|at| clock.when_up(at));
        let at = [by_wall, by_uptime].into_iter().flatten().fold(process.ticked + TICK_WITHIN, Moment::min);
        self.wake_engine(at.max(self.now));
    }

    /// Whatever was planned: it looks now.
    pub(crate) fn wake_engine_again(&mut self) {
        if let Some(process) = &mut self.server.process {
            process.wake = Moment::NEVER;
        }
        self.wake_engine(self.now);
    }

    fn wake_engine(&mut self, at: Moment) {
        let generation = self.server.generation;
        if let Some(process) = &mut self.server.process
            && at < process.wake
        {
            process.wake = at;
            self.agenda.schedule(at, Event::ServerEngine { generation });
        }
    }
}

/// Appends without copying where the target is empty.
fn append<T>(to: &mut Vec<T>, mut from: Vec<T>) {
    if to.is_empty() {
        *to = from;
    } else {
        to.append(&mut from);
    }
}
