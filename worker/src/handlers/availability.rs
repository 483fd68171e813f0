//! Availability of runtimes, and of the state directory, without which none of them can start anything.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::report::{Availability, ReleaseCause};
use protocol::{RuntimeKind, Token};

use crate::core::Worker;

/// A runtime became available or unavailable.
pub(crate) fn on_availability(worker: &mut Worker, runtime: RuntimeKind, availability: Availability) {
    change(worker, |worker| {
        let runtimes = &mut worker.config.runtimes;
        if let Some((_, known)) = runtimes.iter_mut().find(|(kind, _)| *kind == runtime) {
            *known = availability;
        }
    });
}

/// The state directory cannot record new attempts for this reason, or can again.
pub(crate) fn on_storage_fault(worker: &mut Worker, fault: Option<String>) {
    change(worker, |worker| worker.storage_fault = fault);
}

/// Tells the server if a runtime has become available or unavailable by this change. Unstarted attempts of one that is unavailable are
/// released.
fn change(worker: &mut Worker, change: impl FnOnce(&mut Worker)) {
    let before = worker.runtimes();
    change(worker);
    let after = worker.runtimes();
    worker.notices.condition |= before != after;
    for ((runtime, after), (_, before)) in after.into_iter().zip(before) {
        if after == before {
            continue;
        }
        // The last Inventory was incomplete for this runtime, and the next one is complete. A server of an earlier version sees that only if
        // the runtime takes jobs, so another one follows then.
        worker.notices.inventory |= after.answers() && worker.incomplete.contains(&runtime);
        if after.is_available() {
            worker.incomplete.remove(&runtime);
        }
        if let Availability::Unavailable(why) = after {
            release_unstarted(worker, runtime, &why);
        }
    }
}

fn release_unstarted(worker: &mut Worker, runtime: RuntimeKind, why: &str) {
    let stranded: Vec<Token> = worker
        .attempts
        .iter()
        .filter(|(_, attempt)| {
            attempt.is_unstarted() && attempt.definition.is_some() && attempt.runtime() == runtime
        })
        .map(|(token, _)| *token)
        .collect();
    for token in stranded {
        worker.release(token, ReleaseCause::RuntimeUnavailable, why.into());
    }
}
