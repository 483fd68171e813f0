//! Takes back attempts that could not be sent because the session had closed
//! (docs/design/leases-fencing-reconcile.md, L13).

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{Now, SessionId, Token};

use crate::core::Scheduler;
use crate::handlers::attempt_end;
use crate::job::{Attempt, Job, StartState};
use crate::step::ClosedAttempt;

pub(crate) fn return_unsent(scheduler: &mut Scheduler, now: Now, session: SessionId, unsent: &[Token]) {
    for token in unsent {
        let Some(attempt) = scheduler.jobs.get(&token.job).and_then(Job::attempt) else { continue };
        // It may have been sent on a later session.
        let is_the_last = attempt.token(token.job) == *token && attempt.session == Some(session);
        if !is_the_last || !was_never_received(scheduler, attempt) {
            continue;
        }
        let (outcome, message) = match attempt.stopping {
            None => (Outcome::Released, "given back: its worker was gone before it could be sent"),
            Some(StopCause::Cancel) => (Outcome::Cancelled, "stopped before it was sent"),
            Some(_) => (Outcome::Interrupted, "stopped before it was sent"),
        };
        let closed = ClosedAttempt { outcome, ..ClosedAttempt::lost(now, *token, None, message) };
        attempt_end::close(scheduler, now, token.job, closed);
    }
}

/// The worker cannot have received it: it was sent once, and nothing was reported about it. A reconnected worker reports itself what it
/// holds.
fn was_never_received(scheduler: &Scheduler, attempt: &Attempt) -> bool {
    let is_away = scheduler.fleet.worker(attempt.worker).is_some_and(|worker| worker.link.is_away());
    let was_sent_once = attempt.awaited_report().is_some_and(|awaited| !awaited.repeated);
    is_away && was_sent_once && !attempt.has_started() && attempt.start < StartState::Announced
}
