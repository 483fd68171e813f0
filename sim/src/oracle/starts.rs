//! Starts: who is allowed to, and who runs beside whom.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::order::Configure;
use protocol::report::{Numbered, Outcome};
use protocol::{Order, Report, ReportNo, Revision, Token, Uptime};
use scheduler::definition::OnLost;
use scheduler::job::State;
use worker::step::Launch;

use super::truth::Truth;
use super::{Oracle, Scene};
use crate::clock::Moment;
use crate::disk::Disk;
use crate::machine::{Machine, Stage};
use crate::workload::{self, Workload};

/// The lease as this worker can count it, counted once more.
#[derive(Debug, Default)]
pub(super) struct Gate {
    hello_at: Option<Uptime>,
    beats: VecDeque<(u64, Uptime)>,
    lease_from: Option<Uptime>,
    is_reconciled: bool,
    /// Attempts about which the server was asked whether they may start, by the number of the report.
    asked: VecDeque<(ReportNo, Token)>,
    /// It knows of these.
    answered: Vec<Token>,
}

impl Gate {
    fn is_open(&self, up: Uptime) -> bool {
        self.is_reconciled && self.lease_from.is_some_and(|from| up < from + OPEN_FOR)
    }

    fn ask(&mut self, starting: &Numbered<Token>) {
        for (number, token) in (starting.first.0..).map(ReportNo).zip(&starting.list) {
            if self.asked.back().is_none_or(|(last, _)| *last < number) {
                self.asked.push_back((number, *token));
            }
        }
    }

    fn answer(&mut self, number: ReportNo) -> Vec<Token> {
        let before = self.answered.len();
        while let Some((_, token)) = self.asked.front().copied().filter(|(at, _)| *at <= number) {
            self.asked.pop_front();
            self.answered.push(token);
        }
        self.answered[before..].to_vec()
    }
}

impl Oracle {
    pub(crate) fn worker_started(&mut self, now: Moment, no: u16, slots: u32) {
        let most = &mut self.slots[usize::from(no)];
        *most = slots.max(*most);
        self.gates[usize::from(no)] = Gate::default();
        self.promises[usize::from(no)].begin();
        self.queues[usize::from(no)].clear();
        self.troubled(now, no);
    }

    pub(crate) fn worker_says(&mut self, no: u16, up: Uptime, report: &Report) {
        self.queues[usize::from(no)].note(report);
        let gate = &mut self.gates[usize::from(no)];
        match report {
            Report::Hello(_) => {
                gate.hello_at = Some(up);
                gate.is_reconciled = false;
                gate.beats.clear();
            }
            Report::Heartbeat(beat) => gate.beats.push_back((beat.number, up)),
            Report::Starting(list) => gate.ask(list),
            _ => self.promises[usize::from(no)].note(report),
        }
    }

    pub(crate) fn worker_hears_order(&mut self, no: u16, order: &Order) {
        self.queues[usize::from(no)].hear(order);
        let gate = &mut self.gates[usize::from(no)];
        let mut allowed = Vec::new();
        match order {
            Order::Configure(Configure { slots: Some(slots), .. }) => {
                let most = &mut self.slots[usize::from(no)];
                *most = (*slots).max(*most);
            }
            Order::Welcome(it) => {
                gate.lease_from = gate.hello_at;
                allowed = gate.answer(it.last_report);
            }
            Order::Acknowledge(number) => allowed = gate.answer(*number),
            Order::Reconciled(it) => gate.is_reconciled |= it.last,
            Order::Pulse(number) => {
                while let Some((beat, at)) = gate.beats.front().copied().filter(|(beat, _)| beat <= number) {
                    gate.beats.pop_front();
                    if beat == *number {
                        gate.lease_from = gate.lease_from.max(Some(at));
                    }
                }
            }
            _ => {}
        }
        allowed.into_iter().for_each(|token| self.truth(token).may_start = true);
    }

    /// The connection is gone.
    pub(crate) fn worker_lost_link(&mut self, no: u16) {
        self.gates[usize::from(no)].is_reconciled = false;
        self.queues[usize::from(no)].clear();
    }

    /// I11: a worker writes down since when its lease counts.
    pub(crate) fn check_lease_start(&mut self, now: Moment, no: u16, at: Uptime) {
        if Some(at) > self.gates[usize::from(no)].lease_from {
            self.violated(
                now,
                "I11 a lease counts from what was answered",
                format!("w{no} counts from {at:?}"),
            );
        }
    }

    /// I9, I11, I13, Q4: a worker begins with an attempt. It has asked before, if the definition demands it, and no more attempts hold a slot than
    /// there are slots.
    pub(crate) fn check_launch(&mut self, now: Moment, disk: &Disk, machine: &Machine, launch: &Launch) {
        if self.is_excused {
            return;
        }
        let token = launch.token;
        let answered = &mut self.gates[usize::from(machine.no)].answered;
        let is_answered =
            answered.iter().position(|it| *it == token).map(|at| answered.swap_remove(at)).is_some();
        if launch.spec.ask_before_start && !is_answered {
            let what = format!("w{} starts {token}", machine.no);
            self.violated(now, "I13 no start before the answer", what);
        }
        let busy = machine.process.as_ref().and_then(|it| it.worker.as_ref()).map_or(0, |it| it.load().0);
        if busy > self.slots[usize::from(machine.no)] {
            let what = format!("w{} starts {token} as number {busy}", machine.no);
            self.violated(now, "I11 no start without a slot", what);
        }
        self.record_launch_order(machine, launch);
        self.check_memory(now, disk, launch);
        self.check_may_start(now, disk, machine, token);
    }

    /// I9: what was killed for its memory gets more of it, each time.
    fn check_memory(&mut self, now: Moment, disk: &Disk, launch: &Launch) {
        let token = launch.token;
        let row = disk.row(token.job).filter(|_| disk.is_current(token) && !self.is_of_the_past(token));
        let Some(due) = row.map(|row| workload::memory_after(row.revision, row.oom_kills)) else { return };
        let given = launch.spec.resources.memory_bytes;
        if given != due {
            let what = format!("{token} has {given:?} bytes and not {due:?}");
            self.violated(now, "I9 memory grows with each kill for it", what);
        }
    }

    /// I11: a worker may start an attempt now: its lease lasts, and the attempt is current. Checked when it begins, and again at `docker run`.
    pub(crate) fn check_may_start(&mut self, now: Moment, disk: &Disk, machine: &Machine, token: Token) {
        if self.is_excused {
            self.truth(token).is_excused = true;
            return;
        }
        if !self.gates[usize::from(machine.no)].is_open(machine.clock.up(now)) {
            self.violated(now, "I11 no start behind the gate", format!("w{} starts {token}", machine.no));
        }
        if !disk.is_current(token)
            && !self.given_up.contains(&token.job)
            && !self.is_confused_machine(machine)
            && !self.is_of_the_past(token)
        {
            self.violated(
                now,
                "I11 nothing is started that is not current",
                format!("w{} starts {token}", machine.no),
            );
        }
    }

    /// I13: a worker runs an attempt. It does not stop an earlier one of the same job any more.
    pub(crate) fn check_runs_alone(&mut self, now: Moment, machine: &Machine, token: Token) {
        let mut tasks = machine.process.iter().flat_map(|process| &process.tasks);
        let earlier = tasks.find(|task| {
            matches!(task.stage, Stage::Running | Stage::Following | Stage::Settling(_))
                && task.launch.token.job == token.job
                && task.launch.token < token
                && task.stop.is_some()
        });
        if let Some(earlier) = earlier.map(|task| task.launch.token)
            && !self.is_excused
        {
            let what = format!("w{} runs {token} beside {earlier}", machine.no);
            self.violated(now, "I13 no attempt beside an earlier one of its job", what);
        }
    }

    /// I12, I13, I17: a container of an attempt runs.
    pub(crate) fn check_run(
        &mut self,
        now: Moment,
        workload: &Workload,
        disk: &Disk,
        machines: &[Machine],
        (no, token, revision): (u16, Token, Revision),
    ) {
        let worker =
            machines.get(usize::from(no)).and_then(|it| it.engine.container(token)).map(|it| it.worker);
        let is_confused = worker.is_some_and(|worker| self.is_confused(worker));
        let truth = *self.truth(token);
        // A container that somebody else removed was never there as far as anybody can know; one that the worker removed was told and acknowledged before.
        if truth.runs > 0 && !truth.unseen && !is_confused && token.fence > self.given_again {
            self.violated(now, "I12 an attempt runs once", format!("{token} on w{no}"));
        }
        let truth = self.truth(token);
        (truth.runs, truth.machine, truth.since, truth.end) = (truth.runs + 1, no, now, None);
        // One that was given up before its job was cancelled may be with a worker that stood still.
        let latest = disk.row(token.job).filter(|row| row.state == State::Cancelled && row.confirmed);
        let latest = latest.and_then(|row| row.latest.as_ref()).filter(|latest| latest.token == token);
        // The store may have forgotten the cancel, let the job begin, and have remembered it again.
        let is_certain = !is_confused && !self.is_of_the_past(token);
        if is_certain && latest.is_some_and(|latest| latest.outcome == Some(Outcome::Cancelled)) {
            self.violated(now, "I17 what was cancelled does not start", format!("{token} on w{no}"));
        }
        if revision.0 == 0 || is_confused || disk.is_unknown(token) {
            return;
        }
        let definition = workload.definition(revision);
        let waits = definition.loss.on_lost == OnLost::Wait;
        if (!waits && definition.container.self_fence.is_none()) || self.given_up.contains(&token.job) {
            return;
        }
        // It was allowed to run, and its worker stood still before it did: nothing can keep that from happening.
        if self.truth(token).is_excused {
            return;
        }
        for machine in machines {
            let others = machine.engine.containers.iter();
            let other = others.filter(|it| {
                it.token.job == token.job
                    && it.token != token
                    && it.is_running()
                    && !self.is_confused(it.worker)
                    && !disk.is_unknown(it.token)
                    // Attempts of an undone life of the store go on beside the present ones.
                    && !self.is_of_the_past(it.token)
            });
            for other in other.map(|it| it.token).collect::<Vec<_>>() {
                if waits || !self.was_in_trouble(machine, other) {
                    let what = format!("{token} runs on w{no}, {other} on w{}", machine.no);
                    self.violated(now, "I13 never two containers of a job", what);
                }
            }
        }
    }

    /// I13: nobody waits any longer for an attempt whose container was to be gone by now.
    pub(super) fn check_self_fence(&mut self, scene: Scene<'_>, token: Token) {
        // If the state directory was lost since, the container is foreign.
        let runs = |machine: &&Machine| {
            let ours = machine.directory.membership.map(|it| it.worker);
            machine.engine.container(token).is_some_and(|it| it.is_running() && Some(it.worker) == ours)
        };
        let Some(machine) = scene.machines.iter().find(runs) else { return };
        if !self.was_in_trouble(machine, token) {
            let what = format!("{token} runs on w{} although its worker was silent for too long", machine.no);
            self.violated(scene.now, "I13 a fenced container does not outlive the contact", what);
        }
    }

    /// True if something kept a worker from stopping this container by itself.
    fn was_in_trouble(&mut self, machine: &Machine, token: Token) -> bool {
        let Truth { since, is_excused, .. } = *self.truth(token);
        is_excused
            || machine.process.is_none()
            || machine.frozen.is_some()
            || !machine.engine.answers()
            || self.troubles[usize::from(machine.no)] >= since
    }
}

/// The lease without the gate in front of its end.
const OPEN_FOR: Duration = Duration::from_secs(27);
