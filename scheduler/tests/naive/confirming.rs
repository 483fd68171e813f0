//! Lost attempts whose containers may still exist, until their workers confirm that they are gone.

use super::{Job, LiveState, Model};
use crate::world::protocol::{Token, WorkerId};
use crate::world::scheduler::job::State;

impl Model {
    /// Remembers a lost attempt whose container may still exist.
    pub(super) fn doubt(&mut self, id: u64) {
        let Some(attempt) = self.job(id).and_then(Job::attempt).cloned() else { return };
        if let Some(job) = self.job_mut(id) {
            job.unconfirmed.push(attempt.token);
        }
        let worker = self.worker_mut(attempt.worker).expect("who holds something is not forgotten");
        worker.doubts.push((attempt.token, worker.session.filter(|_| worker.settled && !attempt.unsettled)));
    }

    /// Confirms that a lost attempt is gone, as its worker reports.
    pub(super) fn confirm(&mut self, id: WorkerId, token: Token) {
        let doubts = &mut self.worker_mut(id).expect("it speaks").doubts;
        if doubts.iter().any(|(of, _)| *of == token) {
            doubts.retain(|(of, _)| *of != token);
            let Some(job) = self.job_mut(token.job.0).filter(|job| job.unconfirmed.contains(&token)) else {
                return;
            };
            job.unconfirmed.retain(|of| *of != token);
            let was_last = job.unconfirmed.is_empty();
            if was_last && matches!(job.standing, LiveState::Ended(State::Cancelled)) {
                self.say(format!("j{token} confirmed by w{id}"));
            } else {
                self.say(format!("j{} noted {token} confirmed", token.job));
            }
        }
    }

    /// A cancel is not confirmed any more if a worker with a lost attempt of the job was forgotten. Nothing is awaited of the others then.
    pub(super) fn give_up_confirmations(&mut self) {
        let doubts: Vec<Token> =
            self.workers.iter().flat_map(|worker| &worker.doubts).map(|(token, _)| *token).collect();
        for job in self.jobs.iter_mut().filter(|job| job.state() == State::Cancelled) {
            if !job.unconfirmed.iter().all(|token| doubts.contains(token)) {
                job.unconfirmed.clear();
            }
        }
    }
}
