//! The invariants of the queue, for tests.

use alloc::vec::Vec;

use super::{Lane, LaneKey, Parked, ReadyQueue};

impl ReadyQueue {
    /// Inconsistencies, for the audit.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        if self.lanes.values().any(Lane::is_empty) {
            faults.push("a lane is empty");
        }
        if !self.lanes.values().all(Lane::is_in_order) {
            faults.push("a run is not where its first job says");
        }
        let mut right = Self::default();
        right.parked.clone_from(&self.parked);
        for (lane, queue) in &self.lanes {
            if let Some(head) = queue.first() {
                right.put_in(*lane, head, queue.turn);
            }
        }
        if (&right.heads, &right.limited) != (&self.heads, &self.limited) {
            faults.push("the heads are not the lanes' first jobs");
        }
        if (&right.limits, &right.slots, &right.slot_waiters)
            != (&self.limits, &self.slots, &self.slot_waiters)
        {
            faults.push("lanes that wait for limits or slots are not where their first jobs say");
        }
        if (&right.parked_for, &right.rooms, &right.parked_priorities)
            != (&self.parked_for, &self.rooms, &self.parked_priorities)
        {
            faults.push("the index of parked lanes is wrong");
        }
        let is_parked = |lane: &LaneKey| matches!(self.parked.get(lane), Some(Parked::Paused));
        if self.lanes.keys().any(|lane| is_parked(lane) != self.is_paused(lane.definition())) {
            faults.push("the lanes of paused definitions are not those that are parked for it");
        }
        if self.parked.keys().any(|lane| !self.lanes.contains_key(lane)) {
            faults.push("a lane is parked that does not exist");
        }
        let lanes: Vec<(LaneKey, usize)> = self.lanes().collect();
        lanes.into_iter().for_each(|(lane, waiting)| right.count(lane, waiting));
        if (&right.counts, right.count) != (&self.counts, self.count) {
            faults.push("the count of waiting jobs is wrong");
        }
        faults
    }
}
