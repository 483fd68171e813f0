//! First jobs of lanes, for the searches that help jobs which cannot be placed: recalls from backlogs, and workers that are set aside.

use alloc::vec::Vec;
use core::ops::Bound;

use super::{AgedPriority, LaneKey, QueueKey, ReadyQueue};

impl ReadyQueue {
    /// The highest priority of the jobs that take free slots only and are not known to wait for a limit.
    #[must_use]
    pub fn highest_for_free_slot(&self) -> Option<AgedPriority> {
        let sets = [&self.slot_only, &self.parked_for_free_slot, &self.waiting_for_resources];
        let firsts = sets.into_iter().filter_map(|set| set.first().map(|(key, _)| *key));
        firsts.chain(self.limited.first_key()).map(|key| key.priority()).max()
    }

    /// The first of these jobs in order, one of each lane, at most `count`.
    #[must_use]
    pub fn first_for_free_slots(&self, count: usize) -> Vec<(QueueKey, LaneKey)> {
        let sets = [&self.slot_only, &self.parked_for_free_slot, &self.waiting_for_resources];
        let parked = sets.into_iter().flat_map(|set| set.iter().take(count).copied());
        let mut firsts = sorted(parked.chain(self.limited.next_keys(None, count)));
        firsts.truncate(count);
        firsts
    }

    /// A job that takes free slots only waits for something else than a limit, or its limit has not been looked at since it changed.
    #[must_use]
    pub fn may_wait_for_resources(&self) -> bool {
        !(self.waiting_for_resources.is_empty()
            && self.slot_only.is_empty()
            && self.limited.is_empty()
            && self.limits_to_recheck.is_empty())
    }

    /// The next jobs in order after `after` that may wait for resources, one of each lane, at most `count`. Some were not looked at since a
    /// worker changed: those may wait for a slot only.
    #[must_use]
    pub fn next_for_resources(&self, after: Option<QueueKey>, count: usize) -> Vec<(QueueKey, LaneKey)> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Included((key, LaneKey::FIRST)));
        let sets = [&self.slot_only, &self.waiting_for_resources];
        let parked = sets.into_iter().flat_map(|set| {
            let next = set.range((from, Bound::Unbounded)).filter(move |(key, _)| Some(*key) != after);
            next.take(count).copied()
        });
        let mut next = sorted(parked.chain(self.limited.next_keys(after, count)));
        next.truncate(count);
        next
    }
}

fn sorted(keys: impl Iterator<Item = (QueueKey, LaneKey)>) -> Vec<(QueueKey, LaneKey)> {
    let mut keys: Vec<(QueueKey, LaneKey)> = keys.collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    keys
}
