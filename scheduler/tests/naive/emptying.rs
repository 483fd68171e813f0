//! Backlogs that are emptied for a job that takes free slots only. Which one is, and when, is the scheduler's choice; here is what it must
//! not do.

use super::placing::SITTING;
use super::{Job, LiveState, Model};
use crate::world::protocol::{Order, Token};
use crate::world::scheduler::step::{Effect, Step};

impl Model {
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
                    && !self.is_paused(&job.definition)
                    && self.may_run(&worker, job)
                    && self.has_left(&worker, &job.definition)
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
