//! Attempts that could not be sent, because the session was gone by then: they go back at once (DESIGN.md section 5).

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{Now, SessionId, Token};

use crate::fleet::Link;
use crate::job::{Attempt, Job};
use crate::on::{close, inventory};
use crate::scheduler::Scheduler;
use crate::step::ClosedAttempt;

pub(crate) fn take_back(it: &mut Scheduler, now: Now, session: SessionId, unsent: &[Token]) {
    for token in unsent {
        let Some(attempt) = it.jobs.get(&token.job).and_then(Job::attempt) else { continue };
        // On a later session it may have been sent once more.
        let is_the_last = attempt.token(token.job) == *token && attempt.session == Some(session);
        if !is_the_last || !is_untouched(it, attempt) {
            continue;
        }
        let (outcome, message) = match attempt.stopping {
            None => (Outcome::Released, "given back: its worker was gone before it could be sent"),
            Some(StopCause::Cancel) => (Outcome::Cancelled, "stopped before it was sent"),
            Some(_) => (Outcome::Interrupted, "stopped before it was sent"),
        };
        let closed = ClosedAttempt { outcome, ..inventory::gone(now, *token, None, message) };
        close::close(it, now, token.job, closed);
    }
}

/// Whether its worker can know nothing of it. One that is back says itself what it has.
fn is_untouched(it: &Scheduler, attempt: &Attempt) -> bool {
    let is_away = it.fleet.worker(attempt.worker).is_some_and(|worker| worker.link == Link::Away);
    is_away && attempt.started_at.is_none() && !attempt.begun
}
