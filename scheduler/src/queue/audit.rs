//! The invariants of the queue, for tests.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Lane, Parked, ReadyQueue};

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
        for (lane, queue) in &self.lanes {
            if let Some(standing) = queue.state() {
                right.put_in(*lane, standing);
            }
            right.count(*lane, queue.len(), queue.state());
        }
        if (&right.heads, &right.limited) != (&self.heads, &self.limited) {
            faults.push("the heads are not the lanes' first jobs");
        }
        if (&right.limits, &right.waiting_for_slot, &right.slot_only, &right.waiting_for_resources)
            != (&self.limits, &self.waiting_for_slot, &self.slot_only, &self.waiting_for_resources)
        {
            faults.push("lanes that wait for limits, slots or resources are not where their first jobs say");
        }
        if (&right.limited_waiting_for_room, &right.waiting_for_room, &right.parked_priorities)
            != (&self.limited_waiting_for_room, &self.waiting_for_room, &self.parked_priorities)
            || right.parked_for_free_slot != self.parked_for_free_slot
        {
            faults.push("the index of parked lanes is wrong");
        }
        let pinned = self.lanes.keys().filter_map(|lane| Some((lane.pinned_to()?, *lane)));
        if pinned.collect::<BTreeSet<_>>() != self.pinned {
            faults.push("the index of pinned lanes is wrong");
        }
        let is_parked = |queue: &Lane| queue.parked == Some(Parked::Paused);
        if self.lanes.iter().any(|(lane, queue)| is_parked(queue) != self.is_lane_paused(*lane)) {
            faults.push("the lanes of paused definitions and batches are not those that are parked for it");
        }
        if (&right.counts, right.count) != (&self.counts, self.count) {
            faults.push("the count of waiting jobs is wrong");
        }
        faults
    }
}
