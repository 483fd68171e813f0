//! Containers that a worker finds on its engine and that belong to another one: it was scaled down, its state directory was lost, or it
//! has moved. Nobody touches them but on our order, and that goes only to whoever can be told instead of their own worker.
//!
//! Nothing is remembered here. Workers look around once a minute and tell what they find, so what cannot be judged yet is told again.

use alloc::vec::Vec;

use protocol::order::{Cancel, StopCause};
use protocol::report::Foreign;
use protocol::{Order, SessionId};

use crate::job::Job;
use crate::on::strangers;
use crate::scheduler::Scheduler;

/// Has those stopped that nobody wants any more and that their own worker cannot be told about.
pub(crate) fn foreign(it: &mut Scheduler, session: SessionId, found: &[Foreign]) {
    let leftovers: Vec<&Foreign> = found.iter().filter(|foreign| is_leftover(it, foreign)).collect();
    for Foreign { token, .. } in leftovers {
        let cancel = Cancel { token: *token, grace: None, cause: StopCause::Superseded };
        it.send(session, Order::Cancel(cancel));
    }
}

fn is_leftover(it: &Scheduler, foreign: &Foreign) -> bool {
    let token = foreign.token;
    let attempt = it.jobs.get(&token.job).and_then(Job::attempt);
    let is_current = attempt.is_some_and(|attempt| attempt.is(token, foreign.worker));
    // A worker within its lease comes back and does it itself.
    let owner_listens = it
        .fleet
        .worker(foreign.worker)
        .is_some_and(|owner| owner.link.session().is_some() || owner.lease_end.is_some());
    // What this database never gave is left running (FAULTS.md R14).
    let is_stranger = strangers::is_beyond(it, token) || foreign.worker > it.last.worker;
    !is_current && !owner_listens && !is_stranger
}
