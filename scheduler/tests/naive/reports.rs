//! Reports of workers, and the tokens that make them believed.

use std::time::Duration;

use super::budgets::believed;
use super::{Model, fleet};
use crate::world::protocol::order::{ReconcileVerdict, StopCause};
use crate::world::protocol::report::{Foreign, Inventory, Numbered, Outcome, Phase, ReleaseCause};
use crate::world::protocol::{Report, SessionId, Token, WorkerId};
use crate::world::scheduler::placement::exclusion::Excluded;

impl Model {
    pub(super) fn report(&mut self, session: SessionId, report: Report) -> Result<(), String> {
        let now = self.now.up;
        let Some(worker) = self.by_session(session) else { return Ok(()) };
        worker.hear(now);
        worker.reported = now;
        let id = worker.id;
        match report {
            Report::Running(list) => {
                for it in self.unheard(id, session, list) {
                    self.running(id, session, it.token, it.ago);
                }
            }
            Report::Success(list) => {
                for it in self.unheard(id, session, list) {
                    self.result = it.result.clone();
                    self.ended(id, it.token, Outcome::Succeeded, Some(0))?;
                    self.result = None;
                }
            }
            Report::Failure(list) => {
                for it in self.unheard(id, session, list) {
                    let outcome = if it.outcome == Outcome::Succeeded { Outcome::Failed } else { it.outcome };
                    self.ended(id, it.token, outcome, it.exit_code)?;
                }
            }
            Report::Released(list) => {
                for it in self.unheard(id, session, list) {
                    self.released(id, it.token, it.cause)?;
                }
            }
            Report::Inventory(it) => self.inventory(id, session, it)?,
            Report::Condition(it) => {
                let worker = self.worker_mut(id).expect("it speaks");
                let offered = std::mem::replace(&mut worker.offers, fleet::offers(&it.runtimes));
                worker.runtime_broken = fleet::runtime_broken(&it.runtimes);
                worker.sees = fleet::sees(&it.runtimes);
                if worker.offers && !offered {
                    worker.exclusions.retain(|it| !matches!(it.of, Excluded::Runtime(_) | Excluded::Suspect));
                }
                worker.slots = it.slots;
                worker.leaving = it.draining;
            }
            Report::Progress(list) | Report::Status(list) => {
                for (token, phase) in list {
                    self.progress(id, session, token, phase)?;
                }
            }
            Report::Foreign(list) => {
                for Foreign { worker, token } in list {
                    if self.is_left_behind(worker, token) {
                        self.say(format!("to {session}: cancel {token} superseded"));
                    }
                }
            }
            Report::Heartbeat(_) => {
                let ten_leases = self.intervals.lease * 10;
                let worker = self.worker_mut(id).expect("it speaks");
                if worker.unreconciled_since.is_none_or(|since| now.since(since) <= ten_leases) {
                    worker.contact = worker.contact.max(now);
                }
            }
            other => return Err(format!("nobody says {other:?} here")),
        }
        Ok(())
    }

    /// Reports are numbered within a process, without gaps, and each is taken in once.
    fn unheard<T>(&mut self, id: WorkerId, session: SessionId, list: Numbered<T>) -> Vec<T> {
        let worker = self.worker_mut(id).expect("it speaks");
        let (first, last) = (list.first.0, worker.last_report.unwrap_or(list.first.0.saturating_sub(1)));
        if first == 0 || first > last + 1 {
            worker.last_report = None;
            self.say(format!("close {session}: Protocol"));
            return Vec::new();
        }
        let highest = last.max(first + list.list.len() as u64 - 1);
        worker.last_report = Some(highest);
        self.say(format!("to {session}: acknowledge {highest}"));
        list.list
            .into_iter()
            .enumerate()
            .filter(|(n, _)| first + *n as u64 > last)
            .map(|(_, it)| it)
            .collect()
    }

    fn running(&mut self, worker: WorkerId, session: SessionId, token: Token, ago: Duration) {
        let Some(id) = self.bearer(token, worker) else {
            self.late(worker, token, "running");
            // An attempt that this server never assigned comes from another database and is not stopped.
            if !self.may_be_strange(worker, token) {
                self.say(format!("to {session}: cancel {token} superseded"));
            }
            return;
        };
        let (now, lease) = (self.now, self.intervals.lease);
        let definition = self.job(id).expect("it is held").definition.clone();
        let attempt = self.attempt_mut(id).expect("it is held");
        attempt.offer = None;
        if attempt.started.is_some() {
            self.watch_run(id, ago);
            return;
        }
        let at = (now.utc - ago).max(attempt.assigned.utc);
        attempt.started = Some(at);
        attempt.in_backlog = false;
        let limit = definition.timeout.map(|timeout| timeout + definition.container.stop_grace + lease * 2);
        attempt.overrun = limit.map(|limit| now.up + limit.saturating_sub(ago));
        self.use_image(worker, &definition);
        self.say(format!("j{token} started at {}", at.0));
        self.hook_start(id);
        self.watch_run(id, ago);
        self.set_expiry(id, None);
        self.forget_failures(worker, &definition);
    }

    fn ended(
        &mut self,
        worker: WorkerId,
        token: Token,
        outcome: Outcome,
        code: Option<i32>,
    ) -> Result<(), String> {
        self.part(worker, token);
        let Some(id) = self.bearer(token, worker) else {
            self.late(worker, token, outcome.name());
            self.confirm(worker, token);
            return Ok(());
        };
        let definition = self.job(id).expect("it is held").definition.clone();
        match believed(&definition, outcome, code) {
            Outcome::Succeeded => {
                self.forget_failures(worker, &definition);
                self.use_image(worker, &definition);
            }
            Outcome::HostFailed => {
                self.exclude(worker, Excluded::Revision(definition.revision), Some((60, 3_600)));
                self.distrust(worker, &definition);
            }
            _ => {}
        }
        self.close(id, outcome, code)
    }

    fn released(&mut self, worker: WorkerId, token: Token, cause: ReleaseCause) -> Result<(), String> {
        self.part(worker, token);
        let Some(id) = self.bearer(token, worker) else {
            self.late(worker, token, "released");
            self.confirm(worker, token);
            return Ok(());
        };
        let definition = self.job(id).expect("it is held").definition.clone();
        let attempt = self.job(id).and_then(super::Job::attempt).expect("it is held");
        let is_asked = attempt.recalled || attempt.stopping.is_some();
        match cause {
            ReleaseCause::Recalled if is_asked => {}
            ReleaseCause::Recalled | ReleaseCause::Full | ReleaseCause::Draining => {
                self.exclude(worker, Excluded::Anything, Some((1, 60)))
            }
            ReleaseCause::RuntimeUnavailable => {
                let now = self.now.utc;
                if self.worker_mut(worker).expect("it speaks").offers {
                    self.exclude(worker, Excluded::Revision(definition.revision), Some((10, 300)));
                    self.job_mut(id).expect("it is held").due = now;
                } else {
                    self.exclude(worker, Excluded::Runtime(definition.container.runtime), Some((1, 60)));
                }
            }
            ReleaseCause::Secrets => {
                self.exclude(worker, Excluded::Revision(definition.revision), Some((1, 60)))
            }
            ReleaseCause::Policy => self.exclude(worker, Excluded::Revision(definition.revision), None),
        }
        self.close(id, Outcome::Released, None)
    }

    pub(super) fn announce_unknown(&mut self, session: SessionId, tokens: Vec<Token>) {
        if let Some(worker) = self.by_session(session) {
            worker.announced.extend(tokens);
        }
    }

    pub(super) fn announce_unassigned(&mut self, session: SessionId, tokens: Vec<Token>) {
        if let Some(worker) = self.by_session(session) {
            worker.unassigned = tokens;
        }
    }

    fn late(&mut self, worker: WorkerId, token: Token, said: &str) {
        if self.worker_mut(worker).is_some_and(|it| it.unassigned.contains(&token)) {
            return;
        }
        self.say(format!("j{} noted late {token} of w{worker}: {said}", token.job));
    }

    /// The table of docs/design/failures.md, R14.
    fn inventory(&mut self, id: WorkerId, session: SessionId, told: Inventory) -> Result<(), String> {
        let now = self.now.up;
        let worker = self.worker_mut(id).expect("it speaks");
        let is_first = !worker.settled;
        worker.settled = true;
        worker.unreconciled_since = None;
        worker.contact = worker.contact.max(now);
        let offered = std::mem::replace(&mut worker.offers, fleet::offers(&told.runtimes));
        worker.runtime_broken = fleet::runtime_broken(&told.runtimes);
        worker.sees = fleet::sees(&told.runtimes);
        if worker.offers && !offered {
            worker.exclusions.retain(|it| !matches!(it.of, Excluded::Runtime(_) | Excluded::Suspect));
        }
        let is_complete = worker.sees;
        worker.unreachable = false;
        for job in self.held(id) {
            let attempt = self.attempt_mut(job).expect("it is held");
            attempt.loss = None;
            let token = attempt.token;
            if std::mem::take(&mut attempt.missed) {
                self.say(format!("j{job} noted {token} revived on w{id}"));
            }
        }
        self.take_unknown_attempts(id, &told);
        for (token, phase) in &told.attempts {
            let is_current = self.bearer(*token, id).is_some();
            let is_kept = self.may_be_strange(id, *token) && !self.is_idle_rival(*token, *phase);
            let keep = is_current || *phase == Phase::Ended || is_kept;
            let verdict = if keep { ReconcileVerdict::Keep } else { ReconcileVerdict::Stop };
            self.say(format!("to {session}: {verdict:?} {token}"));
        }
        for job in self.held(id) {
            let may_not_stay = self.may_not_stay(job);
            let attempt = self.attempt_mut(job).expect("it is held");
            // Between two inventories attempts are on their way that the worker could not know of.
            if !is_first && !attempt.unsettled {
                continue;
            }
            let token = attempt.token;
            attempt.offer = None;
            match told.attempts.iter().find(|(known, _)| *known == token) {
                Some((_, phase)) => {
                    attempt.recalled = false;
                    attempt.unsettled = false;
                    attempt.in_backlog = *phase == Phase::Backlog && attempt.started.is_none();
                    attempt.begun |= matches!(phase, Phase::Starting | Phase::Running);
                    if let Some(cause) = attempt.stopping {
                        self.say(format!("to {session}: cancel {token} {}", cause.name()));
                    } else if attempt.in_backlog && may_not_stay {
                        self.ask_back(job);
                    }
                }
                None if is_complete => self.absent(job, session)?,
                None => attempt.unsettled = true,
            }
        }
        for (token, since) in self.worker(id).expect("it speaks").doubts.clone() {
            let is_gone = match told.attempts.iter().find(|(known, _)| *known == token) {
                // It is told to stop before it may start.
                Some((_, Phase::Backlog)) => is_first,
                Some(_) => false,
                None => is_complete && (is_first || since != Some(session)),
            };
            if is_gone {
                self.confirm(id, token);
            }
        }
        Ok(())
    }

    /// The worker does not have it, and would know.
    fn absent(&mut self, job: u64, session: SessionId) -> Result<(), String> {
        let now = self.now.up;
        let may_not_start = self.may_not_start(job) || self.is_on_too_old_a_worker(job);
        let attempt = self.attempt_mut(job).expect("it is held");
        match (attempt.started, attempt.stopping) {
            (Some(_), _) => self.close(job, Outcome::Lost, None),
            (None, Some(StopCause::Cancel)) => self.close(job, Outcome::Cancelled, None),
            (None, Some(_)) => self.close(job, Outcome::Interrupted, None),
            (None, None) if attempt.begun => self.close(job, Outcome::Lost, None),
            (None, None) if may_not_start => self.close(job, Outcome::Released, None),
            (None, None) => {
                attempt.recalled = false;
                attempt.unsettled = false;
                attempt.assigned.up = now;
                attempt.session = Some(session);
                self.enqueue(job, session);
                Ok(())
            }
        }
    }

    /// Its worker was gone before it could be sent.
    pub(super) fn take_back_unsent(&mut self, session: SessionId, token: Token) -> Result<(), String> {
        let id = token.job.0;
        let Some(attempt) = self.job(id).and_then(|job| job.attempt()) else { return Ok(()) };
        let is_away = self.worker(attempt.worker).is_some_and(|it| it.session.is_none());
        let was_sent_once = attempt.offer.is_some_and(|it| !it.repeated);
        let is_another = attempt.token != token || attempt.session != Some(session) || !was_sent_once;
        if is_another || !is_away || attempt.started.is_some() || attempt.begun {
            return Ok(());
        }
        let outcome = match attempt.stopping {
            None => Outcome::Released,
            Some(StopCause::Cancel) => Outcome::Cancelled,
            Some(_) => Outcome::Interrupted,
        };
        self.close(id, outcome, None)
    }

    fn progress(
        &mut self,
        worker: WorkerId,
        session: SessionId,
        token: Token,
        phase: Phase,
    ) -> Result<(), String> {
        let Some(job) = self.bearer(token, worker) else { return Ok(()) };
        let attempt = self.attempt_mut(job).expect("it is held");
        attempt.offer = None;
        if phase == Phase::Unknown {
            return if attempt.unsettled { Ok(()) } else { self.absent(job, session) };
        }
        if attempt.started.is_none() && phase != Phase::Backlog {
            attempt.in_backlog = false;
        }
        attempt.begun |= matches!(phase, Phase::Starting | Phase::Running);
        Ok(())
    }

    /// Leaves out attempts that this server never assigned, by the archive or by their numbers.
    fn take_unknown_attempts(&mut self, id: WorkerId, told: &Inventory) {
        let worker = self.worker_mut(id).expect("it speaks");
        let announced = std::mem::take(&mut worker.announced);
        let mut unknown = told.attempts.clone();
        unknown.retain(|(token, _)| {
            self.bearer(*token, id).is_none()
                && (announced.contains(token) || self.is_beyond(*token))
                && !self.has_other_nonce(*token)
        });
        unknown.retain(|(_, phase)| *phase != Phase::Ended);
        let worker = self.worker_mut(id).expect("it speaks");
        worker.unmanaged = unknown.into_iter().map(|(token, _)| token).collect();
    }

    /// Before its inventory is whole nobody can tell.
    fn may_be_strange(&self, id: WorkerId, token: Token) -> bool {
        let worker = self.worker(id).expect("it speaks");
        if self.has_other_nonce(token) {
            return false;
        }
        self.is_beyond(token) || !worker.settled || worker.unmanaged.contains(&token)
    }

    /// Its job goes its own way here, and it has not begun.
    fn is_idle_rival(&self, token: Token, phase: Phase) -> bool {
        phase == Phase::Backlog && self.job(token.job.0).is_some_and(|job| !job.state().has_ended())
    }

    /// The attempt of this number is another one.
    fn has_other_nonce(&self, token: Token) -> bool {
        let attempt = self.job(token.job.0).and_then(super::Job::attempt);
        attempt.is_some_and(|it| it.token.fence == token.fence && it.token != token)
    }

    fn is_beyond(&self, token: Token) -> bool {
        token.fence.0 > self.last_fence || token.job.0 > self.last_job
    }

    /// Nobody wants it any more, and its own worker cannot be told.
    fn is_left_behind(&self, worker: WorkerId, token: Token) -> bool {
        let can_be_told = self.worker(worker).is_some_and(|it| it.session.is_some() || !it.unreachable);
        let was_given = !self.is_beyond(token) && worker.0 <= self.last_worker;
        was_given && !can_be_told && self.bearer(token, worker).is_none()
    }

    fn part(&mut self, worker: WorkerId, token: Token) {
        let worker = self.worker_mut(worker).expect("it speaks");
        worker.unmanaged.retain(|it| *it != token);
    }
}
