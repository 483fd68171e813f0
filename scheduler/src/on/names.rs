//! Whose a name is: who lives under it keeps it, and whoever else comes with it is refused, and may try again.
//!
//! A stranger waits for the end of the lease, since whoever lost its connection a moment ago is about to come back. One that we know does
//! not: where several processes share their state directories (compose), a restart deals these anew, and each comes back under the name of
//! another that has just gone, and will come back under a third. And whoever has attempts is let in whatever it is called: nobody else can
//! tell what became of them.

use alloc::format;

use protocol::WorkerId;
use protocol::order::Refused;

use crate::fleet::Worker;
use crate::input::Connected;
use crate::on::connect::refused;
use crate::scheduler::Scheduler;

/// Finds out whether somebody may be called what it says: a worker that we know, or a stranger.
pub(crate) fn find_free(it: &Scheduler, known: Option<WorkerId>, hello: &Connected) -> Result<(), Refused> {
    let holds = |worker: &Worker| !worker.held.is_empty();
    if known.and_then(|id| it.fleet.worker(id)).is_some_and(holds) {
        return Ok(());
    }
    let is_kept = |owner: &Worker| {
        let is_waited_for = owner.lease_end.is_some() && known.is_none();
        owner.link.session().is_some() || is_waited_for
    };
    let mut others = it.fleet.iter().filter(|(id, _)| Some(*id) != known);
    let Some((id, owner)) = others.find(|(_, other)| other.row.name == hello.name && is_kept(other)) else {
        return Ok(());
    };
    let text = format!(
        "the name {:?} belongs to worker {id}, which is alive ({}): choose another with --name",
        hello.name, owner.card.address
    );
    Err(refused("name_taken", text))
}
