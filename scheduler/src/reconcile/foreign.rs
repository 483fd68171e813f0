//! Foreign containers: those on a worker's engine that belong to another worker, which was removed, lost its state
//! directory, or moved. They are stopped on the server's order only, and only if their own worker cannot be
//! ordered to.
//!
//! Nothing is stored. Workers search once a minute and report their finds, so an undecided container is
//! reported again.

use alloc::vec::Vec;

use protocol::order::{Cancel, StopCause};
use protocol::report::Foreign;
use protocol::{Order, SessionId};

use crate::core::Scheduler;
use crate::job::Job;
use crate::reconcile::unknown_attempts;

/// Stops containers that are not needed any more and whose own worker cannot be ordered to.
pub(crate) fn stop_leftovers(scheduler: &mut Scheduler, session: SessionId, found: &[Foreign]) {
    let leftovers: Vec<&Foreign> = found.iter().filter(|foreign| is_leftover(scheduler, foreign)).collect();
    for Foreign { token, .. } in leftovers {
        let cancel = Cancel { token: *token, grace: None, cause: StopCause::Superseded };
        scheduler.send(session, Order::Cancel(cancel));
    }
}

fn is_leftover(scheduler: &Scheduler, foreign: &Foreign) -> bool {
    let token = foreign.token;
    let attempt = scheduler.jobs.get(&token.job).and_then(Job::attempt);
    let is_current = attempt.is_some_and(|attempt| attempt.is(token, foreign.worker));
    // A worker within its lease will reconnect and stop it itself.
    let owner_listens = scheduler
        .fleet
        .worker(foreign.worker)
        .is_some_and(|owner| owner.link.session().is_some() || !owner.lease.is_expired);
    // An unknown attempt is left running (docs/design/failures.md, R14).
    let is_unknown =
        unknown_attempts::is_above_counters(scheduler, token) || foreign.worker > scheduler.counters.worker;
    !is_current && !owner_listens && !is_unknown
}
