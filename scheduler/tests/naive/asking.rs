//! Attempts that were handed to a worker which says nothing about them: the order is given once more, then the worker is let go.

use super::{LiveState, Model, Offer};
use crate::world::scheduler::job::State;

impl Model {
    /// From now on its worker has a third of a lease to report it.
    pub(super) fn wait_for_report(&mut self, id: u64, repeated: bool) {
        let (sent, due) = (self.now.up, self.now.up + self.intervals.lease / 3);
        self.attempt_mut(id).expect("it is held").offer = Some(Offer { sent, due, repeated });
    }

    /// It was asked back. If it has not been reported yet, that gets the same time.
    pub(super) fn wait_for_release(&mut self, id: u64) {
        let attempt = self.attempt_mut(id).expect("it is held");
        attempt.recalled = true;
        if attempt.offer.is_some() {
            self.wait_for_report(id, false);
        }
    }

    /// Nothing was reported in time.
    pub(super) fn ask_again(&mut self, id: u64) {
        let job = self.job(id).expect("it is held").clone();
        let LiveState::Held(attempt) = &job.standing else {
            panic!("job {id} is {}", State::name(job.state()))
        };
        let offer = self.attempt_mut(id).and_then(|it| it.offer.take()).expect("it is waited for");
        let Some(session) = self.ready_session(attempt.worker) else { return };
        let worker = self.worker_mut(attempt.worker).expect("who holds something is not forgotten");
        if worker.reported <= offer.sent {
            self.wait_for_report(id, offer.repeated);
            self.attempt_mut(id).and_then(|it| it.offer.as_mut()).expect("it was just set").sent = offer.sent;
        } else if offer.repeated || (attempt.recalled && attempt.stopping.is_none()) {
            worker.session = None;
            self.say(format!("close {session}: Unanswered({:?})", attempt.token));
        } else {
            match attempt.stopping {
                Some(cause) => self.say(format!("to {session}: cancel {} {}", attempt.token, cause.name())),
                None => self.say_enqueue(&job, session),
            }
            self.wait_for_report(id, true);
        }
    }
}
