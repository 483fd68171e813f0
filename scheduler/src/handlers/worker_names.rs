//! Decides who may use a name. A live worker keeps its name; another one that asks for it is refused and may
//! try again.
//!
//! A new worker waits for the end of the owner's lease, because the owner may reconnect. A known worker does
//! not wait: with state directories shared by several processes (compose), a restart distributes them anew,
//! and each worker comes back under the name of another. A worker that holds attempts is accepted under any
//! name, because only it can report about them.

use alloc::format;

use protocol::WorkerId;
use protocol::order::Refused;

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::handlers::refusal::refused;
use crate::input::Connected;

/// Checks that the name is free for a known or a new worker.
pub(crate) fn check_name(
    scheduler: &Scheduler,
    known: Option<WorkerId>,
    hello: &Connected,
) -> Result<(), Refused> {
    let holds = |worker: &Worker| !worker.holdings.jobs.is_empty();
    if known.and_then(|id| scheduler.fleet.worker(id)).is_some_and(holds) {
        return Ok(());
    }
    let is_kept = |owner: &Worker| {
        // A revoked owner does not come back.
        let is_waited_for = !owner.lease.is_expired && known.is_none() && owner.row.revoked_at.is_none();
        owner.link.session().is_some() || is_waited_for
    };
    let mut others = scheduler.fleet.by_name(&hello.name).filter(|other| Some(other.row.worker) != known);
    let Some(owner) = others.find(|other| is_kept(other)) else {
        return Ok(());
    };
    let id = owner.row.worker;
    let (name, address) = (&hello.name, &owner.info.address);
    let text = match owner.link.session() {
        Some(_) => {
            format!(
                "the name {name:?} belongs to worker {id}, which is alive ({address}): choose another with --name"
            )
        }
        None => format!(
            "the name {name:?} belongs to worker {id}, which may be alive ({address}): choose another with --name, \
             or try again when the lease of that worker has ended"
        ),
    };
    Err(refused("name_taken", text))
}
