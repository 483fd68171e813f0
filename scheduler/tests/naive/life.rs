//! Requests of clients, ends of attempts, and the passing of time.

use std::sync::Arc;
use std::time::Duration;

use super::budgets::{Then, believed, given_up_after, what_then};
use super::matching::Asked;
use super::{Job, LiveState, Model, said};
use crate::world::protocol::order::StopCause;
use crate::world::protocol::report::Outcome;
use crate::world::protocol::{JobId, Timestamp, Token, Uptime, WorkerId};
use crate::world::scheduler::definition::{Definition, WaitLimits};
use crate::world::scheduler::input::{CancelRequest, ReleaseRequest, UpdateRequest};
use crate::world::scheduler::job::State;
use crate::world::scheduler::limits::keys::JobKeys;
use crate::world::scheduler::new_jobs::StartTime;
use crate::world::scheduler::step::{Accepted, Answer, Rejection};

impl Model {
    /// Makes a job, and returns its number.
    pub(super) fn add_job(
        &mut self,
        (definition, narrowing): (Arc<Definition>, Asked),
        priority: i8,
        keys: Option<JobKeys>,
        due: Timestamp,
        hook_depth: u8,
    ) -> u64 {
        self.last_job += 1;
        let id = self.last_job;
        let standing =
            if due > self.now.utc { LiveState::Scheduled } else { LiveState::Queued { pinned: None } };
        let job = Job {
            id,
            definition,
            narrowing,
            priority,
            due,
            ageing: self.ageing,
            standing,
            keys,
            attempts: 0,
            has_started: false,
            hook_depth,
            batch: None,
            batch_paused: false,
            job_failures: 0,
            oom_kills: 0,
            losses: Vec::new(),
            expires: None,
            expiry_noticed: false,
            last: None,
            unconfirmed: Vec::new(),
        };
        self.say(format!("j{id} added {} due {}", job.state().name(), due.0));
        self.jobs.push(job);
        self.limit(id, due, |waits| waits.queue);
        if due <= self.now.utc {
            self.begins_to_wait(id);
        }
        id
    }

    /// Tells who has asked for jobs in this step where the first of them stands.
    pub(super) fn answer(&mut self) {
        for (ticket, first, count) in std::mem::take(&mut self.accepted) {
            let job = self.job(first).expect("it was just made");
            let (state, pending) = (job.state(), self.pending(job));
            let (first, created_at, replaces) = (JobId(first), self.now.utc, None);
            let accepted = Accepted { first, count, created_at, state, pending, replaces };
            self.say(format!("reply {}: {:?}", ticket.0, Answer::Accepted(accepted)));
        }
    }

    pub(super) fn cancel(&mut self, request: CancelRequest) -> Result<(), String> {
        let id = request.job.0;
        let answer = match self.job(id).map(|job| (job.state(), job.standing.clone())) {
            None | Some((_, LiveState::Ended(_))) => Answer::Rejected(Rejection::NotLive),
            Some((state, LiveState::Held(_))) => {
                self.cancel_attempt(id, &request.by);
                Answer::CancelRequested { state }
            }
            Some((_, _)) => {
                self.end(id, State::Cancelled, None);
                Answer::CancelRequested { state: State::Cancelled }
            }
        };
        self.say(format!("reply {}: {answer:?}", request.ticket.0));
        Ok(())
    }

    /// A start that somebody asks for is never in the past.
    pub(super) fn start(&self, asked: Option<StartTime>) -> Option<Timestamp> {
        let now = self.now.utc;
        asked.map(|asked| match asked {
            StartTime::At(at) => at.max(now),
            StartTime::After(delay) => now + delay,
        })
    }

    pub(super) fn update(&mut self, request: UpdateRequest) {
        let (id, now) = (request.job.0, self.now.utc);
        let answer = match self.job(id).cloned() {
            Some(job) if matches!(job.standing, LiveState::Scheduled | LiveState::Queued { .. }) => {
                let due = self.start(request.update.run_at).unwrap_or(job.due);
                let priority = request.update.priority.unwrap_or(job.priority);
                if (due, priority) != (job.due, job.priority) {
                    let was_queued = matches!(job.standing, LiveState::Queued { .. });
                    let job = self.job_mut(id).expect("it was just found");
                    (job.due, job.priority, job.standing) = (due, priority, LiveState::Scheduled);
                    if due <= now {
                        self.queue(id);
                    }
                    let state = self.job(id).expect("it was just found").state();
                    self.say(format!("j{id} noted updated by {}: due {} p{priority}", request.by, due.0));
                    self.say(format!("j{id} updated: {} due {} p{priority}", state.name(), due.0));
                    if request.update.run_at.is_some() {
                        self.limit(id, due, |waits| waits.queue);
                    }
                    if !was_queued {
                        self.make_room(id);
                    }
                }
                Answer::Done
            }
            None | Some(Job { standing: LiveState::Ended(_), .. }) => Answer::Rejected(Rejection::NotLive),
            Some(job) => Answer::Rejected(Rejection::NotWaiting(job.state())),
        };
        self.say(format!("reply {}: {answer:?}", request.ticket.0));
    }

    pub(super) fn release(&mut self, request: ReleaseRequest) {
        let id = request.job.0;
        let answer = match self.job(id).map(|job| (job.state(), job.standing.clone())) {
            None | Some((_, LiveState::Ended(_))) => Answer::Rejected(Rejection::NotLive),
            Some((_, LiveState::Scheduled | LiveState::Queued { .. })) => Answer::Done,
            Some((_, LiveState::Quarantined)) => {
                self.say(format!("j{id} noted freed by {}", request.by));
                self.free(id);
                Answer::Done
            }
            Some((state, LiveState::Held(attempt))) => {
                let worker = self.worker(attempt.worker).expect("who holds something is not forgotten");
                let is_reconciled = worker.session.is_some() && worker.settled;
                let in_vain = !is_reconciled || attempt.unsettled || !worker.sees;
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
        self.limit(id, now, |waits| waits.quarantine);
        self.free(id);
    }

    fn free(&mut self, id: u64) {
        if let Some(job) = self.job_mut(id) {
            job.losses.clear();
        }
        self.queue(id);
        self.say(format!("j{id} freed"));
        self.limit(id, self.now.utc, |waits| waits.queue);
    }

    /// From then on it may wait as long as its definition says.
    fn limit(&mut self, id: u64, from: Timestamp, of: fn(&WaitLimits) -> Option<Duration>) {
        let limit = of(&self.job(id).expect("it waits").definition.waits);
        self.set_expiry(id, limit.map(|limit| from + limit));
    }

    pub(super) fn set_expiry(&mut self, id: u64, at: Option<Timestamp>) {
        let job = self.job_mut(id).expect("it is there");
        if job.expires != at {
            (job.expires, job.expiry_noticed) = (at, false);
            self.say(format!("j{id} expires {:?}", at.map(|at| at.0)));
        }
    }

    /// It has waited for as long as it may.
    fn expire(&mut self, id: u64) {
        let job = self.job_mut(id).expect("it is there");
        job.expiry_noticed = true;
        if matches!(job.standing, LiveState::Held(_)) {
            self.ask_back(id);
        } else {
            self.end(id, State::Expired, None);
        }
    }

    /// Its worker is to give back what it has not begun.
    pub(super) fn ask_back(&mut self, id: u64) {
        let Some(attempt) = self.job(id).and_then(Job::attempt).cloned() else { return };
        let is_fixed = attempt.recalled || attempt.unsettled || attempt.stopping.is_some();
        if let Some(session) = self.ready_session(attempt.worker)
            && !is_fixed
            && attempt.started.is_none()
        {
            self.wait_for_release(id);
            self.say(format!("to {session}: recall {}", attempt.token));
        }
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
            // It was to be sent in this very step.
            self.said.retain(|line| !line.starts_with(&format!("to {session}: enqueue {token} ")));
            return self.say(format!("to {session}: cancel {token} {}", cause.name()));
        }
        // A cancelled job does not wait for a worker that stays away, whatever its definition says.
        let worker = self.worker(worker).expect("who holds something is not forgotten");
        if cause == StopCause::Cancel {
            let (heard, now) = (worker.contact, self.now.up);
            let loss = self.job(id).expect("it is held").definition.loss.clone();
            let at = (heard + loss.after).max(now);
            let attempt = self.attempt_mut(id).expect("it is held");
            attempt.loss = Some(attempt.loss.map_or(at, |before| before.min(at)));
        }
    }

    /// An attempt is over.
    pub(super) fn close(&mut self, id: u64, outcome: Outcome, exit_code: Option<i32>) -> Result<(), String> {
        let now = self.now.utc;
        let job = self.job(id).cloned().ok_or_else(|| format!("job {id} is not known"))?;
        let outcome = believed(&job.definition, outcome, exit_code);
        self.judge_run(&job, outcome, exit_code);
        let job = self.job_mut(id).expect("it was just found");
        let token = job.attempt().ok_or_else(|| format!("job {id} has no attempt"))?.token;
        let told_gone = outcome == Outcome::Lost && !job.unconfirmed.contains(&token);
        let told_gone = told_gone.then(|| format!("j{id} noted {token} confirmed"));
        let has_run = exit_code.is_some() || job.attempt().is_some_and(|it| it.started.is_some());
        if has_run {
            self.hook_start(id);
        }
        let job = self.job_mut(id).expect("it was just found");
        let goes_on = !has_run && matches!(outcome, Outcome::Interrupted | Outcome::Released);
        let state = match what_then(job, now, outcome, exit_code) {
            Then::End(state) => {
                // The note tells a server that starts later: also if none of the other attempts can be confirmed any more.
                let is_unconfirmed = state == State::Cancelled && !job.unconfirmed.is_empty();
                self.end(id, state, Some((token, outcome)));
                self.said.extend(told_gone.filter(|_| is_unconfirmed));
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
                (job.due, job.standing) = (now, LiveState::Quarantined);
                self.limit(id, now, |waits| waits.quarantine);
                State::Quarantined
            }
        };
        self.said.extend(told_gone);
        let due = self.job(id).expect("it was closed").due;
        if state != State::Quarantined && !goes_on {
            self.limit(id, due.max(now), |waits| waits.queue);
        }
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
            job.standing = LiveState::Scheduled;
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
            job.standing = LiveState::Scheduled;
        }
    }

    pub(super) fn queue(&mut self, id: u64) {
        let Some(job) = self.job(id) else { return };
        let pinned = self.pinned_to(job);
        if let Some(job) = self.job_mut(id) {
            job.standing = LiveState::Queued { pinned };
        }
        self.begins_to_wait(id);
    }

    pub(super) fn end(&mut self, id: u64, state: State, closed: Option<(Token, Outcome)>) {
        self.set_expiry(id, None);
        let has_unconfirmed_attempts = self.job(id).is_some_and(|job| !job.unconfirmed.is_empty());
        let confirmed = state != State::Cancelled || !has_unconfirmed_attempts;
        let closed = closed.map(|(token, outcome)| format!("{token} {}", outcome.name()));
        self.say(said::ended(id, state.name(), confirmed, closed));
        self.say(format!("tell j{id} {}", state.name()));
        self.hook_end(id, state);
        if let Some(job) = self.job_mut(id) {
            job.standing = LiveState::Ended(state);
            if confirmed {
                job.unconfirmed.clear();
            }
        }
        self.end_pause_of_batch(id);
        self.give_up_confirmations();
    }

    /// Whatever is due is done, the earliest first.
    pub(super) fn tick(&mut self) -> Result<(), String> {
        while let Some(date) = self.next_date() {
            match date {
                Date::Due(id) => {
                    self.queue(id);
                    self.say(format!("j{id} due"));
                    self.make_room(id);
                }
                Date::Expiry(id) => self.expire(id),
                Date::CordonEnd(worker) => self.end_cordon(worker),
                Date::DrainEnd(worker) => self.end_drain(worker),
                Date::Stale(index) => self.become_stale(index),
            }
        }
        while let Some(alarm) = self.next_alarm() {
            self.fire(alarm)?;
        }
        Ok(())
    }

    fn next_date(&self) -> Option<Date> {
        let scheduled = self.jobs.iter().filter(|job| matches!(job.standing, LiveState::Scheduled));
        let due = scheduled.map(|job| (job.due, Date::Due(job.id)));
        let unnoticed = self.jobs.iter().filter(|job| !job.expiry_noticed);
        let expiries = unnoticed.filter_map(|job| Some((job.expires?, Date::Expiry(job.id))));
        let drains = self.workers.iter().filter_map(|it| Some((it.drain_end()?, Date::DrainEnd(it.id))));
        let cordons = self.workers.iter().filter_map(|it| Some((it.cordon_end()?, Date::CordonEnd(it.id))));
        let stale = self.stale_dates().map(|(at, index)| (at, Date::Stale(index)));
        let all = due.chain(expiries).chain(cordons).chain(drains).chain(stale);
        all.filter(|(at, _): &(Timestamp, Date)| *at <= self.now.utc).min().map(|(_, date)| date)
    }

    fn next_alarm(&self) -> Option<Alarm> {
        let lease = self.intervals.lease;
        let leases = self.workers.iter().filter_map(|it| Some((it.lease_end(lease)?, Alarm::Lease(it.id.0))));
        let held = self.jobs.iter().filter_map(|job| Some((job.id, job.attempt()?)));
        let held = held.flat_map(|(id, it)| {
            let loss = it.loss.map(|at| (at, Alarm::Loss(id)));
            let offer = it.offer.map(|it| (it.due, Alarm::Offer(id)));
            [loss, it.overrun.map(|at| (at, Alarm::Overrun(id))), offer].into_iter().flatten()
        });
        let exclusions =
            self.workers.iter().flat_map(|worker| worker.exclusions.iter().map(|it| (worker.id.0, it)));
        let exclusions = exclusions.filter(|(_, it)| it.active);
        let exclusions = exclusions.filter_map(|(id, it)| Some((it.until?, Alarm::Exclusion(id))));
        let slow = self.slow_alarms().map(|(at, id)| (at, Alarm::Slow(id)));
        let all = leases.chain(held).chain(slow).chain(exclusions);
        all.filter(|(at, _): &(Uptime, Alarm)| *at <= self.now.up).min().map(|(_, alarm)| alarm)
    }

    fn fire(&mut self, alarm: Alarm) -> Result<(), String> {
        match alarm {
            Alarm::Lease(worker) => self.fall_silent(worker),
            Alarm::Loss(id) => {
                let job = self.job(id).expect("it is held");
                let attempt = job.attempt().expect("it is held");
                let worker = self.worker(attempt.worker).expect("who holds something is not forgotten");
                // A worker that is joining gets one more lease, from its first Hello on.
                let is_joining = worker.session.is_some() && !worker.settled;
                let grace = if is_joining { self.intervals.lease } else { Duration::ZERO };
                let is_cancelled = attempt.stopping == Some(StopCause::Cancel);
                let silent = worker.contact + given_up_after(job, is_cancelled).expect("it was set");
                let joined = worker.unreconciled_since.filter(|_| is_joining).unwrap_or_default();
                let until = silent.max(joined) + grace;
                if until > self.now.up {
                    self.attempt_mut(id).expect("it is held").loss = Some(until);
                    return Ok(());
                }
                if let Some(look) = self.next_look(job, worker) {
                    self.attempt_mut(id).expect("it is held").loss = Some(look);
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
            Alarm::Slow(id) => self.become_slow(id),
            Alarm::Offer(id) => self.ask_again(id),
            Alarm::Exclusion(id) => {
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
enum Date {
    Due(u64),
    Expiry(u64),
    CordonEnd(WorkerId),
    DrainEnd(WorkerId),
    Stale(usize),
}

/// In the order in which those of the same instant are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Lease(u64),
    Loss(u64),
    Overrun(u64),
    Slow(u64),
    Offer(u64),
    Exclusion(u64),
}
