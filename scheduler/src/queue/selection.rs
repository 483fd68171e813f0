//! First jobs of lanes, for the searches that help jobs which cannot be placed: recalls from backlogs, and workers that are set aside.

use alloc::vec::Vec;

use super::{AgedPriority, LaneKey, ParkedFor, QueueKey, ReadyQueue};

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
        let mut firsts = sorted(parked.chain(self.limited.first_keys(count)));
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

    /// The first jobs in order that may wait for resources, one of each lane, at most `count` of each kind. Some were not looked at since a
    /// worker changed: those may wait for a slot only.
    #[must_use]
    pub fn first_for_resources(&self, count: usize) -> Vec<(QueueKey, LaneKey)> {
        let parked = self.waiting_for_resources.iter().take(count).chain(self.slot_only.iter().take(count));
        sorted(parked.copied().chain(self.limited.first_keys(count)))
    }

    /// The first jobs of lanes that go before this one and are not known to wait for a limit, at most `count` of each kind. Of lanes without
    /// limits that are parked, only those that wait for these workers.
    pub fn before<'s>(
        &'s self,
        key: QueueKey,
        parked_for: impl Iterator<Item = ParkedFor> + 's,
        count: usize,
    ) -> impl Iterator<Item = (QueueKey, LaneKey)> + 's {
        let sets = [&self.slot_only, &self.parked_for_free_slot, &self.waiting_for_resources];
        let for_room = parked_for.filter_map(|it| self.waiting_for_room.get(&it));
        let parked = sets.into_iter().chain(for_room);
        let parked = parked.flat_map(move |set| set.iter().take(count).copied());
        let unparked = self.heads.first_keys(count).chain(self.limited.first_keys(count));
        parked.chain(unparked).filter(move |(other, _)| *other < key)
    }
}

fn sorted(keys: impl Iterator<Item = (QueueKey, LaneKey)>) -> Vec<(QueueKey, LaneKey)> {
    let mut keys: Vec<(QueueKey, LaneKey)> = keys.collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    keys
}
