//! Availability of runtimes.

use alloc::vec::Vec;

use protocol::report::{Availability, ReleaseCause};
use protocol::{RuntimeKind, Token};

use crate::core::Worker;

/// A runtime became available or unavailable. If unavailable, its unstarted attempts are released.
pub(crate) fn update(worker: &mut Worker, runtime: RuntimeKind, availability: Availability) {
    let Some((_, known)) = worker.config.runtimes.iter_mut().find(|(kind, _)| *kind == runtime) else {
        return;
    };
    if *known == availability {
        return;
    }
    let is_available = availability.is_available();
    *known = availability.clone();
    worker.notices.condition = true;
    if is_available {
        // The last Inventory was incomplete for this runtime; the next one is complete.
        worker.notices.inventory |= worker.incomplete.remove(&runtime);
        return;
    }
    let stranded: Vec<Token> = worker
        .attempts
        .iter()
        .filter(|(_, attempt)| {
            attempt.is_unstarted() && attempt.definition.is_some() && attempt.runtime() == runtime
        })
        .map(|(token, _)| *token)
        .collect();
    let Availability::Unavailable(why) = availability else { return };
    for token in stranded {
        worker.release(token, ReleaseCause::RuntimeUnavailable, why.clone());
    }
}
