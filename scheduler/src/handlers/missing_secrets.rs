//! The server tells which definitions name secrets that it does not have. Their jobs wait, as those of a paused definition do, and get no
//! attempt until the secrets are there. An attempt that a worker has keeps its secrets, so nothing is recalled. Schedules go on.

use alloc::collections::BTreeSet;

use protocol::Revision;

use crate::core::Scheduler;
use crate::handlers::pause;

pub(crate) fn replace(scheduler: &mut Scheduler, revisions: BTreeSet<Revision>) {
    // The server repeats the list. Only a change may walk all definitions: somebody has put a secret there, or removed one.
    if scheduler.missing_secrets != revisions {
        scheduler.missing_secrets = revisions;
        pause::apply(scheduler);
        scheduler.changed = true;
    }
}
