//! Checks each durable change of a job against its definition and against what its container truly did.

use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{JobId, Token};
use scheduler::Scheduler;
use scheduler::definition::{Definition, OnLost, RetryOn};
use scheduler::job::{AttemptTimeout, State};
use scheduler::placement::rules::RunOn;
use scheduler::step::{Change, ClosedAttempt, Ended};

use super::{Oracle, Truth};
use crate::clock::Moment;
use crate::disk::{Disk, Row, uses_own_budget, uses_platform_budget};
use crate::docker::ContainerEnd;
use crate::machine::Machine;
use crate::workload::Workload;

/// The state that the oracle checks beside the change itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'w> {
    pub(crate) now: Moment,
    pub(crate) machines: &'w [Machine],
    /// Since when the server has been there without a break.
    pub(crate) attentive_since: Moment,
    pub(crate) drift_ppm: u64,
    /// The time after which a waiting job gains a step of priority, if it does.
    pub(crate) ageing: Option<Duration>,
}

impl Oracle {
    /// A job has moved on the disk: the row is as it is now.
    pub(crate) fn moved(
        &mut self,
        scene: Scene<'_>,
        definition: &Definition,
        change: &Change,
        rows: &[Option<Row>],
        index: usize,
    ) {
        self.moved_at = scene.now;
        let Some(row) = &rows[index] else { return };
        let (closed, job) = match change {
            Change::Assigned(it) => {
                if self.cancelled.contains(&it.token.job) {
                    let what = format!("{} although somebody was told that it is being stopped", it.token);
                    self.violated(scene.now, "I17 what was cancelled gets no further attempt", what);
                }
                self.check_concurrency(scene.now, rows, index);
                self.check_unique_keys(scene.now, rows, index);
                self.check_rate(scene.now, row, it);
                return self.check_order(scene, rows, index, definition);
            }
            Change::AttemptClosed { closed, job, .. } => (closed, *job),
            Change::Ended(it) if it.state == State::Expired => {
                self.check_expiry(scene.now, definition, it, row);
                match &it.closed {
                    Some(closed) => (closed, it.job),
                    None => return,
                }
            }
            Change::Ended(it) => match &it.closed {
                Some(closed) => {
                    if it.confirmed && it.state == State::Cancelled {
                        self.check_confirmed_gone(scene, it.job, Some(closed.token));
                    }
                    (closed, it.job)
                }
                None => {
                    if it.confirmed && it.state == State::Cancelled {
                        self.check_confirmed_gone(scene, it.job, None);
                    }
                    return;
                }
            },
            _ => return,
        };
        self.check_end(scene, definition, closed, row);
        self.check_retry_budget(scene, definition, closed, job, row);
    }

    /// Promise 2: a job expires only after it has waited for as long as its definition allows, and only unstarted.
    fn check_expiry(&mut self, now: Moment, definition: &Definition, ended: &Ended, row: &Row) {
        let started = ended.closed.as_ref().is_some_and(|closed| closed.started_at.is_some());
        let waited = ended.at.since(row.waits_since);
        let limits = [definition.waits.queue, definition.waits.quarantine];
        let limit = limits.into_iter().flatten().min();
        if started || limit.is_none_or(|limit| waited < limit) {
            let what = format!("job {} of {} expired after {waited:?}", ended.job, definition.name);
            self.violated(now, "promise 2 no job expires before its time", what);
        }
    }

    /// I7, promise 3: an end that is believed is what happened.
    fn check_end(&mut self, scene: Scene<'_>, definition: &Definition, closed: &ClosedAttempt, row: &Row) {
        let token = closed.token;
        if row.latest.as_ref().is_some_and(|latest| self.is_confused(latest.worker)) {
            return;
        }
        let truth = *self.truth(token);
        if closed.outcome == Outcome::Lost {
            return self.check_loss(scene, definition, closed, row);
        }
        let is_lie = |truth: Truth| self.is_lie(scene, definition, closed, row, &truth);
        let mut others = self.other_ends.iter().filter(|(of, _)| *of == token);
        let lie = is_lie(truth) && others.all(|(_, end)| is_lie(Truth { end: Some(*end), ..truth }));
        if lie {
            let what = format!("{token} {} although its truth is {truth:?}", closed.outcome.name());
            self.violated(scene.now, "I7 what is believed is true", what);
        }
        let blames_us =
            matches!(closed.outcome, Outcome::Cancelled | Outcome::TimedOut | Outcome::Interrupted);
        let ended = truth.end.filter(|end| !end.by_engine);
        let was_over = ended.is_some_and(|end| truth.stopped.is_none_or(|at| end.at + CLOCKS_DIFFER < at));
        let is_known = !truth.removed && !self.walls_step && !self.causes_lost && !self.is_of_the_past(token);
        if blames_us && was_over && is_known {
            let what = format!("{token} {} although its truth is {truth:?}", closed.outcome.name());
            self.violated(scene.now, "I7 what ended by itself has its own outcome", what);
        }
        if self.still_runs(token) {
            let what = format!("{token} is {} and runs on", closed.outcome.name());
            self.violated(scene.now, "I7 what is over has ended", what);
        }
    }

    /// True if an end is told that its container did not have.
    fn is_lie(
        &self,
        scene: Scene<'_>,
        definition: &Definition,
        closed: &ClosedAttempt,
        row: &Row,
        truth: &Truth,
    ) -> bool {
        let stopping = row.latest.as_ref().and_then(|latest| latest.stopping);
        let ended = truth.end.filter(|end| !end.by_engine);
        let by_us = ended.is_some_and(|end| end.by_us);
        let is_good = |end: ContainerEnd| end.code == 0 || definition.success_exit_codes.contains(&end.code);
        match closed.outcome {
            // The order of a stop and an end is told by the wall clock once the process that saw both is gone.
            Outcome::Succeeded | Outcome::Failed | Outcome::OomKilled if by_us => {
                !self.walls_step && !self.causes_lost
            }
            Outcome::Succeeded => ended.is_none_or(|end| Some(end.code) != closed.exit_code || !is_good(end)),
            Outcome::Failed => ended.is_none_or(|end| Some(end.code) != closed.exit_code || is_good(end)),
            Outcome::OomKilled => ended.is_none_or(|end| !end.oom),
            // Its run time is lost with it.
            Outcome::TimedOut if truth.removed => false,
            Outcome::TimedOut => {
                let limit = row.timeout.map_or(definition.timeout, AttemptTimeout::limit);
                // A clock that is set between an end and a stop turns their order around.
                let stopped = truth.stopped.filter(|_| self.walls_step);
                let ran = truth.end.map(|end| end.at.max(stopped.unwrap_or(end.at)).since(truth.since));
                // Nobody's clock is as fast as that.
                limit.is_none()
                    || ran.is_some_and(|ran| Some(ran) < limit.map(|it| shortened(it, scene.drift_ppm)))
            }
            // The request may be among the undone commits.
            Outcome::Cancelled | Outcome::Interrupted if self.is_of_the_past(closed.token) => false,
            Outcome::Cancelled => stopping != Some(StopCause::Cancel),
            // Its worker does not know it, and in the old state that came back it had not begun.
            Outcome::Released if was_not_begun(&closed.message) && closed.token.fence <= self.given_again => {
                false
            }
            // A container that was removed while nobody looked was, as far as anybody can tell, never there: it is begun once more.
            Outcome::PullFailed | Outcome::StartFailed | Outcome::HostFailed | Outcome::Released => {
                truth.runs > 0 && !truth.removed
            }
            Outcome::DaemonLost => truth.end.is_none_or(|end| !end.by_engine),
            Outcome::Interrupted => {
                let is_ordered = row.latest.as_ref().is_some_and(|latest| latest.interrupted);
                !is_ordered && !truth.fenced && !self.interrupted.contains(&true)
            }
            Outcome::Lost => false,
        }
    }

    /// I17: the server says that nothing is left of a job: neither of this attempt nor of any other.
    pub(super) fn check_confirmed_gone(&mut self, scene: Scene<'_>, job: JobId, named: Option<Token>) {
        // Of a command that was under way when the machine was wiped nobody knows.
        let is_unknown = |it: &Truth| it.unseen && it.removed;
        let is_running =
            |it: &&Truth| it.token.job == job && it.runs > 0 && it.end.is_none() && !is_unknown(it);
        let running = self.truths.iter().chain(self.namesakes.values()).filter(is_running).map(|it| it.token);
        let holder = |token| scene.machines.iter().find_map(|machine| machine.engine.container(token));
        // Nobody knows the attempts of an undone life of the store.
        let is_known = |token: &Token| Some(*token) == named || !self.is_of_the_past(*token);
        let is_confused = |token| holder(token).is_some_and(|it| self.is_confused(it.worker));
        if let Some(token) = running.filter(is_known).find(|token| !is_confused(*token)) {
            self.violated(scene.now, "I17 what is confirmed is gone", format!("{token} runs on"));
        }
    }

    /// An attempt is given up: nobody could have known its outcome, and the server was there to hear of it.
    fn check_loss(&mut self, scene: Scene<'_>, definition: &Definition, closed: &ClosedAttempt, row: &Row) {
        let token = closed.token;
        let Some(latest) = &row.latest else { return };
        let message = closed.message.as_str();
        if message.starts_with(GIVEN_UP) {
            self.given_up.push(token.job);
        } else if message.starts_with(UNHEARD) {
            let is_cancelled = latest.stopping == Some(StopCause::Cancel);
            if definition.given_up_after(is_cancelled).is_none() {
                self.violated(scene.now, "I13 on_lost: wait waits", format!("{token} is given up"));
            }
        } else if self.truth(token).fenced && !message.starts_with(UNKNOWN) && !self.causes_lost {
            let what =
                format!("{token} is lost although its worker stopped it because it had lost the server");
            self.violated(scene.now, "promise 5 the server's absence is held against nobody", what);
        // A machine that was set back twice may have lost it, and have it again.
        } else if message.starts_with(UNKNOWN) && !self.is_of_the_past(token) && !self.truth(token).removed {
            let knows = |machine: &&Machine| {
                machine.directory.membership.is_some_and(|it| it.worker == latest.worker)
                    && machine.engine.container(token).is_some()
            };
            if let Some(machine) = scene.machines.iter().find(knows) {
                let what = format!("{token} is lost although w{} has its container", machine.no);
                self.violated(scene.now, "promise 3 no outcome is lost that somebody knows", what);
            }
        }
    }

    /// Promise 5: a worker that is given up as silent was silent while the server was there to hear of it.
    pub(super) fn check_silence(
        &mut self,
        scene: Scene<'_>,
        disk: &Disk,
        workload: &Workload,
        (closed, state): (&ClosedAttempt, State),
    ) {
        if closed.message.starts_with(UNASKED) && self.truth(closed.token).may_start {
            let what = format!("{} is given back although it may have started", closed.token);
            self.violated(scene.now, "I13 who may have started is waited for", what);
        }
        let Some(row) = disk.row(closed.token.job).filter(|_| closed.message.starts_with(UNHEARD)) else {
            return;
        };
        let lost_after = shortened(workload.definition(row.revision).loss.after, scene.drift_ppm);
        let there_for = scene.now.since(scene.attentive_since);
        if there_for < lost_after {
            let what = format!("{} is lost {there_for:?} after the server came", closed.token);
            self.violated(scene.now, "promise 5 the server's absence is held against nobody", what);
        }
        let definition = workload.definition(row.revision);
        let silent_for = row.latest.as_ref().and_then(|latest| self.silent_for(scene.now, latest.worker));
        let latest = row.latest.as_ref();
        // The cancel may be a part of the same step.
        let is_cancelled = state == State::Cancelled
            || latest.is_some_and(|latest| latest.stopping == Some(StopCause::Cancel));
        let enough = definition.given_up_after(is_cancelled).unwrap_or(definition.loss_timeout());
        let enough = shortened(enough, scene.drift_ppm);
        if let Some(silent_for) = silent_for.filter(|it| *it < enough) {
            let what = format!("{} is lost {silent_for:?} after its worker was heard of", closed.token);
            self.violated(scene.now, "I13 nobody is given up before the time", what);
        }
        if definition.container.self_fence.is_some() && scene.drift_ppm <= DRIFT_FENCED {
            self.check_self_fence(scene, closed.token);
        }
        let kept_for = self.truth(closed.token).kept.map(|at| scene.now.since(at));
        if let Some(kept_for) = kept_for.filter(|it| *it < lost_after) {
            let what = format!("{} is lost {kept_for:?} after its worker was told to keep it", closed.token);
            self.violated(scene.now, "promise 5 who comes back keeps what it has", what);
        }
    }

    /// Promise 5: nobody is given up as silent who is connected, even if it has not told yet what it has.
    pub(super) fn check_absence(
        &mut self,
        now: Moment,
        disk: &Disk,
        scheduler: &Scheduler,
        closed: &ClosedAttempt,
    ) {
        let row = disk.row(closed.token.job).filter(|_| closed.message.starts_with(UNHEARD));
        let Some(latest) = row.and_then(|row| row.latest.as_ref()) else { return };
        let is_connected = scheduler.worker_facts().any(|it| it.id == latest.worker && it.session.is_some());
        if is_connected && !self.comes_and_goes(latest.worker) {
            let what = format!("{} is lost although worker {} is connected", closed.token, latest.worker);
            self.violated(now, "promise 5 who comes back keeps what it has", what);
        }
    }

    /// I9, I10: the right budget pays, and never more than there is.
    fn check_retry_budget(
        &mut self,
        scene: Scene<'_>,
        definition: &Definition,
        closed: &ClosedAttempt,
        job: JobId,
        row: &Row,
    ) {
        let outcome = closed.outcome;
        let cancelled = row.latest.as_ref().is_some_and(|it| it.stopping == Some(StopCause::Cancel));
        let another = row.job_failures <= definition.retry.max
            && definition.retry.when.contains(&outcome)
            && (outcome != Outcome::Failed
                || definition.retry.exit_codes.is_empty()
                || closed.exit_code.is_some_and(|code| definition.retry.exit_codes.contains(&code)));
        let losses = row.losses.len() as u32;
        let by_person = closed.message.starts_with(GIVEN_UP);
        let ends_it = match definition.loss.on_lost {
            OnLost::Retry => false,
            OnLost::Fail => true,
            // Only after `on_lost_timeout`.
            OnLost::Wait => closed.message.starts_with(UNHEARD),
        };
        let is_final = outcome == Outcome::Lost && ends_it && !by_person;
        let wrong = match row.state {
            State::Scheduled | State::Queued | State::Quarantined if is_final => true,
            State::Succeeded => outcome != Outcome::Succeeded,
            State::Failed => !uses_own_budget(outcome) || (another && !cancelled),
            State::Cancelled => !cancelled && !self.is_of_the_past(closed.token),
            State::Lost => outcome != Outcome::Lost || !ends_it,
            State::Expired => cancelled || !matches!(outcome, Outcome::Released | Outcome::Interrupted),
            State::Quarantined => {
                !uses_platform_budget(outcome) || (losses < definition.loss.limit && !by_person)
            }
            State::Scheduled | State::Queued if uses_own_budget(outcome) => !another || cancelled,
            State::Scheduled | State::Queued if uses_platform_budget(outcome) => {
                cancelled || losses >= definition.loss.limit
            }
            // On a bad line it is stopped again and again.
            State::Scheduled => {
                outcome != Outcome::Interrupted || definition.container.self_fence.is_none() || cancelled
            }
            State::Queued => cancelled,
            State::Assigned | State::Running => true,
        };
        if wrong {
            let what = format!(
                "job {job} of {} is {} after {} with {} failures and {losses} losses",
                definition.name,
                row.state.name(),
                outcome.name(),
                row.job_failures
            );
            self.violated(scene.now, "I9 I10 the right budget pays", what);
        }
    }

    /// I22: the assigned job was the first of its definition, of those that ask for the same workers.
    fn check_order(&mut self, scene: Scene<'_>, rows: &[Option<Row>], index: usize, definition: &Definition) {
        // Keys take turns, whatever their jobs' due times; so do batches that limit their members. Members wait for workers of their own.
        let is_own_turn = definition.retry.on == RetryOn::Same || definition.limits.gate_starts();
        if is_own_turn || definition.placement.run_on != RunOn::One {
            return;
        }
        let Some(row) = &rows[index] else { return };
        let place = |index: usize, row: &Row| match scene.ageing {
            None => (-i64::from(row.priority), row.due_at.0, index),
            // A step of priority is worth as much as a period of waiting.
            Some(period) => (0, row.due_at.0 - i64::from(row.priority) * period.as_millis() as i64, index),
        };
        let passed_over = rows.iter().enumerate().find(|(other, it)| {
            it.as_ref().is_some_and(|it| {
                it.state == State::Queued
                    && !it.batch_paused
                    && it.revision == row.revision
                    && it.narrowing == row.narrowing
                    && it.limited_by == row.limited_by
                    && place(*other, it) < place(index, row)
            })
        });
        if let Some((other, _)) = passed_over {
            let what = format!("job {} goes before job {}", index + 1, other + 1);
            self.violated(scene.now, "I22 the queue has an order", what);
        }
    }
}

/// The true length of a duration that the fastest possible clock measures.
pub(super) fn shortened(length: Duration, drift_ppm: u64) -> Duration {
    length.mul_f64(1.0 - 2.1 * drift_ppm as f64 / 1e6).saturating_sub(Duration::from_millis(50))
}

/// Clocks that run apart by more take the whole margin between the end of a fenced container and its successor.
const DRIFT_FENCED: u64 = 10_000;

/// Instants that a process puts on disk for the next one are in milliseconds of the clock on the wall.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

/// The server has no trace of a start, and the worker came back without the attempt.
fn was_not_begun(message: &str) -> bool {
    message.starts_with("given back: ") && message.ends_with(" when its worker came back without it")
}

/// The beginnings of what the scheduler says of attempts that it gives up.
const GIVEN_UP: &str = "a person gave it up";
pub(super) const UNHEARD: &str = "its worker has not been heard of";
const UNASKED: &str = "given back: its worker fell silent";
const UNKNOWN: &str = "its worker does not know";
