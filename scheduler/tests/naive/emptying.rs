//! Backlogs that are emptied for a job that takes free slots only. Which one is, and when, is the scheduler's choice; here is what it must
//! not do.

use std::time::Duration;

use super::placing::SITTING;
use super::{Job, LiveState, Model, Worker};
use crate::world::protocol::{Order, Token};
use crate::world::scheduler::step::{Effect, Step};

impl Model {
    /// A job of a higher priority could have a worker's whole backlog, and none is emptied for it for longer than a search may wait.
    pub(super) fn check_emptied_backlogs(&mut self) -> Result<(), String> {
        let first = self.job_that_needs_a_backlog();
        let since = match (first, self.needs_backlog_since) {
            (Some(id), Some((of, since))) if of == id => Some((id, since)),
            (Some(id), _) => Some((id, self.now.up)),
            (None, _) => None,
        };
        self.needs_backlog_since = since;
        match since {
            Some((id, since)) if since + SEARCHES <= self.now.up => {
                Err(format!("job {id} could have a backlog, and nobody gives one"))
            }
            _ => Ok(()),
        }
    }

    /// The first waiting job that takes free slots only and could have a backlog, if no worker that could run it gives its backlog already.
    fn job_that_needs_a_backlog(&self) -> Option<u64> {
        let waits = |job: &&Job| {
            matches!(job.standing, LiveState::Queued { .. })
                && job.is_limited()
                && self.is_let(job)
                && !self.is_job_on_hold(job)
        };
        let able = |job: &Job, worker: &Worker| {
            self.ready_session(worker.id).is_some()
                && !(worker.cordoned || worker.leaving || worker.unreachable)
                && self.may_run(worker, job)
                && self.has_left(worker, &job.definition)
                && !self.is_set_aside_before(worker, job)
        };
        let gives = |worker: &Worker| {
            self.sitting(worker).iter().all(|job| job.attempt().is_some_and(|it| it.recalled))
        };
        let could_give = |job: &Job, worker: &Worker| {
            let sitting = self.sitting(worker);
            let left = sitting.iter().filter_map(|it| Some((it, it.attempt()?)));
            let mut left = left.filter(|(_, attempt)| !attempt.recalled);
            !sitting.is_empty()
                && left.all(|(it, attempt)| {
                    it.steps() < job.steps()
                        && !attempt.unsettled
                        && attempt.stopping.is_none()
                        && attempt.assigned.up + SITTING <= self.now.up
                })
        };
        let first = self.jobs.iter().filter(waits).min_by_key(|job| job.order())?;
        let mut able_workers = self.workers.iter().filter(|worker| able(first, worker));
        let is_given = able_workers.clone().any(gives);
        (!is_given && able_workers.any(|worker| could_give(first, worker))).then_some(first.id)
    }

    /// Says the recalls that are allowed: a worker gives its whole backlog for a job of a higher priority that could start there. Others must
    /// have another reason.
    pub(super) fn allow_emptied_backlogs(&mut self, step: &Step) {
        for effect in &step.effects {
            let Effect::Send(session, Order::Recall(tokens)) = effect else { continue };
            let line = |token: &Token| format!("to {session}: recall {token}");
            let tokens: Vec<Token> =
                tokens.iter().copied().filter(|it| !self.said.contains(&line(it))).collect();
            if tokens.is_empty() {
                continue;
            }
            let worker = self.by_session(*session).expect("it is there").clone();
            let left: Vec<Job> = self.sitting(&worker);
            let is_left = |job: &&Job| job.attempt().is_some_and(|it| !it.recalled);
            let left: Vec<&Job> = left.iter().filter(is_left).collect();
            let is_whole = left.len() == tokens.len()
                && left.iter().all(|job| job.attempt().is_some_and(|it| tokens.contains(&it.token)));
            let is_ripe = |job: &&Job| {
                let attempt = job.attempt().expect("it is held");
                let is_fixed = attempt.unsettled || attempt.stopping.is_some();
                !is_fixed && attempt.assigned.up + SITTING <= self.now.up
            };
            let highest = left.iter().map(|job| job.steps()).max();
            let gains = |job: &&Job| {
                matches!(job.standing, LiveState::Queued { .. })
                    && job.is_limited()
                    && Some(job.steps()) > highest
                    && self.is_let(job)
                    && !self.is_job_on_hold(job)
                    && self.may_run(&worker, job)
                    && self.has_left(&worker, &job.definition)
                    && !self.is_set_aside_before(&worker, job)
            };
            if !is_whole || !left.iter().all(is_ripe) || !self.jobs.iter().any(|job| gains(&job)) {
                continue;
            }
            for token in tokens {
                self.wait_for_release(token.job.0);
                self.say(line(&token));
            }
        }
    }
}

/// A backlog becomes old enough, and two searches pass.
const SEARCHES: Duration = Duration::from_millis(500);
