//! Lanes stand among those that may be next, or are parked for workers, for a slot or under a limit. Also the counts of waiting jobs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use super::{AgedPriority, Lane, LaneKey, Parked, ParkedFor, QueueKey, ReadyQueue};
use crate::definitions::DefinitionNo;

impl ReadyQueue {
    pub(super) fn lane_mut(&mut self, lane: LaneKey) -> &mut Lane {
        let (turns, parked) = (&mut self.turns, &mut self.parked);
        let is_paused = self.paused.contains(&lane.definition());
        self.lanes.entry(lane).or_insert_with(|| {
            if is_paused {
                parked.insert(lane, Parked::Paused);
            }
            *turns += u64::from(lane.takes_turns());
            Lane::at_turn(if lane.takes_turns() { *turns } else { 0 })
        })
    }

    fn is_under_limit(&self, lane: LaneKey) -> bool {
        matches!(self.parked.get(&lane), Some(Parked::Limit(_)))
    }

    pub(super) fn count(&mut self, lane: LaneKey, added: usize) {
        self.count += added;
        let limited = if self.is_under_limit(lane) { added } else { 0 };
        let counts = self.counts.entry((lane.definition(), lane.pinned_to())).or_default();
        counts.jobs += added;
        counts.limited += limited;
    }

    pub(super) fn count_out(&mut self, lane: LaneKey, removed: usize) {
        self.count -= removed;
        let limited = if self.is_under_limit(lane) { removed } else { 0 };
        let of = (lane.definition(), lane.pinned_to());
        if let Some(counts) = self.counts.get_mut(&of) {
            counts.jobs -= removed;
            counts.limited -= limited;
            if counts.jobs == 0 {
                self.counts.remove(&of);
            }
        }
    }

    /// Sets the reason why a lane is not looked at, and counts its jobs by it.
    pub(super) fn set_parked(&mut self, lane: LaneKey, parked: Option<Parked>) {
        let waiting = self.lanes.get(&lane).map_or(0, Lane::len);
        self.count_out(lane, waiting);
        match parked {
            Some(parked) => drop(self.parked.insert(lane, parked)),
            None => drop(self.parked.remove(&lane)),
        }
        if waiting > 0 {
            self.count(lane, waiting);
        }
    }

    /// Moves a lane to where its first job belongs. `before` was its first job.
    pub(super) fn update_head(&mut self, lane: LaneKey, before: Option<QueueKey>) {
        let Some((after, turn)) = self.lanes.get(&lane).map(|queue| (queue.first(), queue.turn)) else {
            return;
        };
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.take_out(lane, before, turn);
        }
        match after {
            Some(after) => self.put_in(lane, after, turn),
            None => {
                self.lanes.remove(&lane);
                self.parked.remove(&lane);
            }
        }
        // It may go before the lane that was unparked last.
        match self.parked.get(&lane) {
            Some(Parked::Limit(limit)) => self.stir_limit(*limit),
            Some(Parked::Workers(parked_for)) => {
                if let Some(last) = self.woken_rooms.get_mut(parked_for) {
                    *last = None;
                }
            }
            Some(Parked::Slot(_) | Parked::Resources(_) | Parked::Paused) | None => {}
        }
    }

    /// The jobs of this definition may not start.
    #[must_use]
    pub fn is_paused(&self, definition: DefinitionNo) -> bool {
        self.paused.contains(&definition)
    }

    /// Says of a definition without waiting jobs that it is paused, or not.
    pub fn pause_definition(&mut self, definition: DefinitionNo, is_paused: bool) {
        if is_paused {
            self.paused.insert(definition);
        } else {
            self.paused.remove(&definition);
        }
    }

    /// Parks the lanes of these definitions, and unparks those of others that were paused. Returns the lanes that are newly parked. Walks
    /// all lanes.
    pub fn pause(&mut self, paused: BTreeSet<DefinitionNo>) -> Vec<LaneKey> {
        if paused.is_empty() && self.paused.is_empty() {
            return Vec::new();
        }
        self.paused = paused;
        let is_parked = |lane: &LaneKey| matches!(self.parked.get(lane), Some(Parked::Paused));
        let changed = self.lanes.keys().filter(|lane| is_parked(lane) != self.is_paused(lane.definition()));
        let changed: Vec<LaneKey> = changed.copied().collect();
        let (newly, resumed): (Vec<LaneKey>, Vec<LaneKey>) =
            changed.into_iter().partition(|lane| self.is_paused(lane.definition()));
        newly.iter().for_each(|lane| self.put_aside(*lane, Parked::Paused));
        resumed.into_iter().for_each(|lane| self.put_back(lane));
        newly
    }

    pub(super) fn put_aside(&mut self, lane: LaneKey, parked: Parked) {
        let Some((head, turn)) = self.lanes.get(&lane).and_then(|queue| Some((queue.first()?, queue.turn)))
        else {
            return;
        };
        self.take_out(lane, head, turn);
        self.set_parked(lane, Some(parked));
        self.put_in(lane, head, turn);
    }

    /// Unparks the lane behind this one, of those that wait for a slot of these workers.
    pub fn unpark_slot_after(&mut self, lane: LaneKey, parked_for: ParkedFor) {
        let next = self.head(lane).and_then(|head| self.slots.get(&parked_for)?.after(lane, head));
        if let Some(next) = next {
            self.put_back_first(next);
        }
    }

    /// Unparks the lanes with limits that are parked for these workers. Those without limits follow by [`Self::wake_next_for_room`].
    pub fn unpark(&mut self, parked_for: ParkedFor) {
        for lane in self.parked_for.get(&parked_for).cloned().unwrap_or_default() {
            self.put_back(lane);
        }
        if self.rooms.contains_key(&parked_for) {
            self.woken_rooms.insert(parked_for, None);
        }
        self.stir_slots(parked_for);
    }

    /// Unparks the next lane without limits for each of the workers that were named to [`Self::unpark`], as long as `has_room` says that
    /// one of them has room. Each lane is woken once, unless its first job changes.
    pub fn wake_next_for_room(&mut self, has_room: impl Fn(ParkedFor) -> bool) {
        let mut after = None;
        while let Some((parked_for, last)) = self.woken_after(after) {
            after = Some(parked_for);
            let next = self.rooms.get(&parked_for).filter(|_| has_room(parked_for)).and_then(|lanes| {
                let from = last.map_or(Bound::Unbounded, Bound::Excluded);
                lanes.range((from, Bound::Unbounded)).next().copied()
            });
            match next {
                Some(next) => {
                    self.woken_rooms.insert(parked_for, Some(next));
                    self.put_back(next.1);
                }
                None => drop(self.woken_rooms.remove(&parked_for)),
            }
        }
    }

    fn woken_after(&self, after: Option<ParkedFor>) -> Option<(ParkedFor, Option<(QueueKey, LaneKey)>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.woken_rooms.range((from, Bound::Unbounded)).next().map(|(parked_for, last)| (*parked_for, *last))
    }

    /// Adds a lane to the set that its state says.
    pub(super) fn put_in(&mut self, lane: LaneKey, head: QueueKey, turn: u64) {
        match self.parked.get(&lane).copied() {
            None if lane.is_limited() => self.limited.insert(lane, head, turn),
            None => self.heads.insert(lane, head, turn),
            Some(Parked::Workers(parked_for)) if lane.is_limited() => {
                self.parked_for.entry(parked_for).or_default().insert(lane);
            }
            Some(Parked::Workers(parked_for)) => {
                if self.rooms.entry(parked_for).or_default().insert((head, lane)) {
                    *self.parked_priorities.entry(head.priority()).or_default() += 1;
                }
            }
            Some(Parked::Slot(parked_for)) => {
                self.slots.entry(parked_for).or_default().insert(lane, head, turn);
                self.slot_waiters.insert((head, lane));
            }
            Some(Parked::Resources(parked_for)) => {
                self.slots.entry(parked_for).or_default().insert(lane, head, turn);
            }
            Some(Parked::Limit(limit)) => self.limits.entry(limit).or_default().insert(lane, head, turn),
            Some(Parked::Paused) => {}
        }
    }

    /// Removes a lane from the set that its state says.
    pub(super) fn take_out(&mut self, lane: LaneKey, head: QueueKey, turn: u64) {
        match self.parked.get(&lane).copied() {
            None if lane.is_limited() => self.limited.remove(lane, head, turn),
            None => self.heads.remove(lane, head, turn),
            Some(Parked::Workers(parked_for)) if lane.is_limited() => {
                if let Some(lanes) = self.parked_for.get_mut(&parked_for) {
                    lanes.remove(&lane);
                    if lanes.is_empty() {
                        self.parked_for.remove(&parked_for);
                    }
                }
            }
            Some(Parked::Workers(parked_for)) => {
                let Some(lanes) = self.rooms.get_mut(&parked_for) else { return };
                let was_here = lanes.remove(&(head, lane));
                if lanes.is_empty() {
                    self.rooms.remove(&parked_for);
                }
                if was_here {
                    self.drop_parked_priority(head.priority());
                }
            }
            Some(Parked::Slot(parked_for) | Parked::Resources(parked_for)) => {
                self.slot_waiters.remove(&(head, lane));
                if let Some(heads) = self.slots.get_mut(&parked_for) {
                    heads.remove(lane, head, turn);
                    if heads.is_empty() {
                        self.slots.remove(&parked_for);
                    }
                }
            }
            Some(Parked::Limit(limit)) => {
                if let Some(heads) = self.limits.get_mut(&limit) {
                    heads.remove(lane, head, turn);
                    if heads.is_empty() {
                        self.limits.remove(&limit);
                    }
                }
            }
            Some(Parked::Paused) => {}
        }
    }

    fn drop_parked_priority(&mut self, priority: AgedPriority) {
        if let Some(lanes) = self.parked_priorities.get_mut(&priority) {
            *lanes -= 1;
            if *lanes == 0 {
                self.parked_priorities.remove(&priority);
            }
        }
    }
}
