//! Workers with room, in the orders in which they are tried.

use alloc::collections::BTreeSet;

use protocol::WorkerId;

use crate::fleet::FULL;

/// Position of a worker with room: load, random tie-breaker, id.
pub type Position = (u32, u32, WorkerId);

/// Workers with room.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenWorkers {
    /// By load.
    pub by_load: BTreeSet<Position>,
    /// The same as (1 if no slot is free, else 0; tie-breaker; id).
    pub by_tie: BTreeSet<Position>,
}

impl OpenWorkers {
    /// Lists a worker.
    pub fn insert(&mut self, (load, tie, worker): Position) {
        self.by_load.insert((load, tie, worker));
        self.by_tie.insert((u32::from(load >= FULL), tie, worker));
    }

    /// Removes a worker.
    pub fn remove(&mut self, (load, tie, worker): Position) {
        self.by_load.remove(&(load, tie, worker));
        self.by_tie.remove(&(u32::from(load >= FULL), tie, worker));
    }

    /// The worker is listed at this position in both orders.
    #[must_use]
    pub fn contains(&self, (load, tie, worker): Position) -> bool {
        self.by_load.contains(&(load, tie, worker))
            && self.by_tie.contains(&(u32::from(load >= FULL), tie, worker))
    }
}
