//! What people want of jobs, how attempts end, and what time does.

use std::time::Duration;

use super::budgets::{Then, what_then};
use super::{Job, Model, Standing, said};
use crate::world::protocol::order::StopCause;
use crate::world::protocol::report::Outcome;
use crate::world::protocol::{JobId, Timestamp, Token, Uptime};
use crate::world::scheduler::input::{CancelRequest, ReleaseRequest, Submit};
use crate::world::scheduler::job::State;
use crate::world::scheduler::step::{Accepted, Answer, Rejection};

impl Model {
    pub(super) fn submit(&mut self, submit: Submit) {
        let first = self.last_job + 1;
        let count = submit.jobs.len() as u32;
        for new in submit.jobs {
            self.last_job += 1;
            let id = self.last_job;
            let definition = self.definitions.iter().find(|it| it.revision == new.revision);
            let definition = definition.expect("the walk asks for what there is").clone();
            let priority = new.priority.unwrap_or(definition.priority);
            let due = new.run_at.map_or(self.now.utc, |at| at.max(self.now.utc));
            let standing =
                if due > self.now.utc { Standing::Scheduled } else { Standing::Queued { pinned: None } };
            let job = Job {
                id,
                definition,
                priority,
                due,
                standing,
                attempts: 0,
                own_failures: 0,
                oom_kills: 0,
                losses: Vec::new(),
                last: None,
                in_doubt: Vec::new(),
            };
            self.say(format!("j{id} added {} due {}", job.state().name(), due.0));
            self.jobs.push(job);
        }
        self.accepted.push((submit.ticket, first, count));
    }

    /// Tells who has asked for jobs in this step where the first of them stands.
    pub(super) fn answer(&mut self) {
        for (ticket, first, count) in std::mem::take(&mut self.accepted) {
            let job = self.job(first).expect("it was just made");
            let (state, pending) = (job.state(), self.pending(job));
            let accepted = Accepted { first: JobId(first), count, created_at: self.now.utc, state, pending };
            self.say(format!("reply {}: {:?}", ticket.0, Answer::Accepted(accepted)));
        }
    }

    pub(super) fn cancel(&mut self, request: CancelRequest) -> Result<(), String> {
        let id = request.job.0;
        let answer = match self.job(id).map(|job| (job.state(), job.standing.clone())) {
            None | Some((_, Standing::Ended(_))) => Answer::Rejected(Rejection::NotLive),
            Some((state, Standing::Held(attempt))) => {
                if attempt.stopping != Some(StopCause::Cancel) {
                    self.say(format!("j{id} noted cancel by {}", request.by));
                    self.stop(id, StopCause::Cancel);
                }
                Answer::Cancelling(state)
            }
            Some((_, _)) => {
                self.end(id, State::Cancelled, None);
                Answer::Cancelling(State::Cancelled)
            }
        };
        self.say(format!("reply {}: {answer:?}", request.ticket.0));
        Ok(())
    }

    pub(super) fn release(&mut self, request: ReleaseRequest) {
        let id = request.job.0;
        let answer = match self.job(id).map(|job| (job.state(), job.standing.clone())) {
            None | Some((_, Standing::Ended(_))) => Answer::Rejected(Rejection::NotLive),
            Some((_, Standing::Scheduled | Standing::Queued { .. })) => Answer::Done,
            Some((_, Standing::Quarantined)) => {
                self.say(format!("j{id} noted freed by {}", request.by));
                self.free(id);
                Answer::Done
            }
            Some((state, Standing::Held(attempt))) => {
                let worker = self.worker(attempt.worker).expect("who holds something is not forgotten");
                let in_vain = match (worker.session, worker.settled) {
                    (None, _) => worker.unreachable,
                    (Some(_), false) => false,
                    (Some(_), true) => attempt.unsettled || !worker.offers,
                };
                if in_vain {
                    self.say(format!("j{id} noted freed by {}", request.by));
                    self.give_up(id, attempt.token, attempt.stopping);
                    if let Some(session) = self.ready_session(attempt.worker) {
                        self.say(format!("to {session}: cancel {} superseded", attempt.token));
                    }
                    Answer::Done
                } else {
                    Answer::Rejected(Rejection::NothingToRelease(state))
                }
            }
        };
        self.say(format!("reply {}: {answer:?}", request.ticket.0));
    }

    /// By a person's word: what was to be cancelled is cancelled, all else goes on with a clean slate.
    fn give_up(&mut self, id: u64, token: Token, stopping: Option<StopCause>) {
        if stopping == Some(StopCause::Cancel) {
            self.doubt(id);
            return self.end(id, State::Cancelled, Some((token, Outcome::Lost)));
        }
        self.doubt(id);
        self.take_back(id, Outcome::Lost);
        let now = self.now.utc;
        if let Some(job) = self.job_mut(id) {
            job.due = now;
        }
        self.say(format!("j{token} lost, then quarantined due {}", now.0));
        self.free(id);
    }

    fn free(&mut self, id: u64) {
        if let Some(job) = self.job_mut(id) {
            job.losses.clear();
        }
        self.queue(id);
        self.say(format!("j{id} freed"));
    }

    /// Asks for the end of a job's attempt, unless that was asked for already; a cancel goes before any other cause.
    pub(super) fn stop(&mut self, id: u64, cause: StopCause) {
        let Some(attempt) = self.attempt_mut(id) else { return };
        let goes_before =
            attempt.stopping.is_none() || (cause == StopCause::Cancel && attempt.stopping != Some(cause));
        if !goes_before {
            return;
        }
        attempt.stopping = Some(cause);
        let (token, worker) = (attempt.token, attempt.worker);
        self.say(format!("j{token} stopping {}", cause.name()));
        if let Some(session) = self.ready_session(worker) {
            return self.say(format!("to {session}: cancel {token} {}", cause.name()));
        }
        // A cancelled job does not wait for a worker that stays away, whatever its definition says.
        let worker = self.worker(worker).expect("who holds something is not forgotten");
        if cause == StopCause::Cancel && worker.unreachable {
            let (heard, now) = (worker.heard, self.now.up);
            let after = self.job(id).expect("it is held").definition.loss.after;
            let attempt = self.attempt_mut(id).expect("it is held");
            attempt.loss = attempt.loss.or(Some((heard + after).max(now)));
        }
    }

    /// What is given up may still be there.
    fn doubt(&mut self, id: u64) {
        let Some(attempt) = self.job(id).and_then(Job::attempt).cloned() else { return };
        if let Some(job) = self.job_mut(id) {
            job.in_doubt.push(attempt.token);
        }
        let worker = self.worker_mut(attempt.worker).expect("who holds something is not forgotten");
        worker.doubts.push((attempt.token, worker.session.filter(|_| !attempt.unsettled)));
    }

    /// An attempt is over.
    pub(super) fn close(&mut self, id: u64, outcome: Outcome, exit_code: Option<i32>) -> Result<(), String> {
        let now = self.now.utc;
        let job = self.job_mut(id).ok_or_else(|| format!("job {id} is not known"))?;
        let token = job.attempt().ok_or_else(|| format!("job {id} has no attempt"))?.token;
        let told_gone = outcome == Outcome::Lost && !job.in_doubt.contains(&token);
        let told_gone = told_gone.then(|| format!("j{id} noted {token} confirmed"));
        let state = match what_then(job, now, outcome, exit_code) {
            Then::End(state) => {
                self.end(id, state, Some((token, outcome)));
                let is_doubted = self.job(id).is_some_and(|job| !job.in_doubt.is_empty());
                self.said.extend(told_gone.filter(|_| is_doubted));
                return Ok(());
            }
            Then::Again(ceiling) => {
                self.take_back(id, outcome);
                self.again(id, token, now, ceiling)?
            }
            Then::InItsPlace => {
                self.take_back(id, outcome);
                self.again(id, token, self.job(id).expect("it was closed").due.min(now), Duration::ZERO)?
            }
            Then::Hold => {
                self.take_back(id, outcome);
                let job = self.job_mut(id).expect("it was closed");
                (job.due, job.standing) = (now, Standing::Quarantined);
                State::Quarantined
            }
        };
        self.said.extend(told_gone);
        let due = self.job(id).expect("it was closed").due;
        self.say(format!("j{token} {}, then {} due {}", outcome.name(), state.name(), due.0));
        Ok(())
    }

    /// The delay was drawn once: what was decided is kept, if it is from then on and soon enough.
    fn again(&mut self, id: u64, token: Token, from: Timestamp, most: Duration) -> Result<State, String> {
        let now = self.now.utc;
        let drawn = self.due_again.iter().find(|(whose, _)| *whose == token);
        let due =
            drawn.map(|(_, due)| *due).ok_or_else(|| format!("j{token}: its job does not wait again"))?;
        if due < from || due > from + most {
            return Err(format!("job {id} is due at {}, not from {} on and within {most:?}", due.0, from.0));
        }
        let job = self.job_mut(id).expect("it was closed");
        job.due = due;
        if due > now {
            job.standing = Standing::Scheduled;
            return Ok(State::Scheduled);
        }
        self.queue(id);
        Ok(State::Queued)
    }

    /// The attempt is its worker's no more. Where it did not begin it never was.
    fn take_back(&mut self, id: u64, outcome: Outcome) {
        if let Some(job) = self.job_mut(id)
            && let Some(attempt) = job.attempt().cloned()
        {
            if outcome != Outcome::Released {
                let by_platform =
                    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed);
                job.last = Some((attempt.worker, by_platform));
            }
            job.standing = Standing::Scheduled;
        }
    }

    pub(super) fn queue(&mut self, id: u64) {
        let Some(job) = self.job(id) else { return };
        let pinned = self.pinned_to(job);
        if let Some(job) = self.job_mut(id) {
            job.standing = Standing::Queued { pinned };
        }
    }

    pub(super) fn end(&mut self, id: u64, state: State, closed: Option<(Token, Outcome)>) {
        let is_doubted = self.job(id).is_some_and(|job| !job.in_doubt.is_empty());
        let confirmed = state != State::Cancelled || !is_doubted;
        let closed = closed.map(|(token, outcome)| format!("{token} {}", outcome.name()));
        self.say(said::ended(id, state.name(), confirmed, closed));
        self.say(format!("tell j{id} {}", state.name()));
        if let Some(job) = self.job_mut(id) {
            job.standing = Standing::Ended(state);
            if confirmed {
                job.in_doubt.clear();
            }
        }
    }

    /// Whatever is due is done, the earliest first.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        let mut due: Vec<(Timestamp, u64)> = self
            .jobs
            .iter()
            .filter(|job| matches!(job.standing, Standing::Scheduled))
            .map(|job| (job.due, job.id))
            .collect();
        let now = self.now.utc;
        due.retain(|(due, _)| *due <= now);
        due.sort();
        for (_, id) in due {
            self.queue(id);
            self.say(format!("j{id} due"));
        }
        self.end_drains();
        while let Some(alarm) = self.next_alarm() {
            self.fire(alarm)?;
        }
        Ok(())
    }

    fn next_alarm(&self) -> Option<Alarm> {
        let lease = self.intervals.lease;
        let leases =
            self.workers.iter().filter(|it| it.watched).map(|it| (it.heard + lease, Alarm::Lease(it.id.0)));
        let held = self.jobs.iter().filter_map(|job| Some((job.id, job.attempt()?)));
        let held = held.flat_map(|(id, it)| {
            let loss = it.loss.map(|at| (at, Alarm::Loss(id)));
            [loss, it.overrun.map(|at| (at, Alarm::Overrun(id)))].into_iter().flatten()
        });
        let exclusions =
            self.workers.iter().flat_map(|worker| worker.exclusions.iter().map(|it| (worker.id.0, it)));
        let exclusions = exclusions.filter(|(_, it)| it.active);
        let exclusions = exclusions.filter_map(|(id, it)| Some((it.until?, Alarm::Offer(id))));
        let all = leases.chain(held).chain(exclusions);
        all.filter(|(at, _): &(Uptime, Alarm)| *at <= self.now.up).min().map(|(_, alarm)| alarm)
    }

    fn fire(&mut self, alarm: Alarm) -> Result<(), String> {
        match alarm {
            Alarm::Lease(worker) => self.fall_silent(worker),
            Alarm::Loss(id) => {
                let job = self.job(id).expect("it is held");
                let attempt = job.attempt().expect("it is held");
                let worker = self.worker(attempt.worker).expect("who holds something is not forgotten");
                let until = worker.heard + job.definition.loss.after;
                // It was heard of since, whatever has become of its connection.
                if until > self.now.up {
                    self.attempt_mut(id).expect("it is held").loss = Some(until);
                    return Ok(());
                }
                self.doubt(id);
                self.close(id, Outcome::Lost, None)?;
            }
            Alarm::Overrun(id) => {
                if let Some(attempt) = self.attempt_mut(id) {
                    attempt.overrun = None;
                }
                self.stop(id, StopCause::Timeout);
            }
            Alarm::Offer(id) => {
                let now = self.now.up;
                let worker =
                    self.workers.iter_mut().find(|worker| worker.id.0 == id).expect("it is excluded");
                for exclusion in
                    worker.exclusions.iter_mut().filter(|it| it.until.is_some_and(|at| at <= now))
                {
                    exclusion.active = false;
                }
            }
        }
        Ok(())
    }
}

/// In the order in which those of the same instant are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Lease(u64),
    Loss(u64),
    Overrun(u64),
    Offer(u64),
}
