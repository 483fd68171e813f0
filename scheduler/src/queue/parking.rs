//! Lanes stand among those that may be next, or are parked for workers, for a slot or under a limit. Also the counts of waiting jobs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use hashbrown::hash_map::Entry;

use super::heads_of_limit::{HeadsOfLimit, Left};
use super::{AgedPriority, First, Heads, Lane, LaneKey, LaneState, Parked, ParkedFor, QueueKey, ReadyQueue};
use crate::ids::DefinitionNo;
use crate::limits::LimitNo;

impl ReadyQueue {
    pub(super) fn lane_mut(&mut self, lane: LaneKey) -> &mut Lane {
        let Self { turns, paused, pinned, .. } = self;
        self.lanes.entry(lane).or_insert_with(|| {
            if let Some(only) = lane.pinned_to() {
                pinned.insert((only, lane));
            }
            *turns += u64::from(lane.takes_turns());
            let turn = if lane.takes_turns() { *turns } else { 0 };
            let is_paused = lane.is_paused() || paused.contains(&lane.definition());
            Lane::at_turn(turn, is_paused.then_some(Parked::Paused))
        })
    }

    pub(super) fn remove_lane(&mut self, lane: LaneKey) -> Option<Lane> {
        if let Some(only) = lane.pinned_to() {
            self.pinned.remove(&(only, lane));
        }
        self.lanes.remove(&lane)
    }

    /// Moves jobs from a lane to another one, at the cost of one for the order of the lanes. Jobs that are not there are left out.
    pub fn move_jobs(
        &mut self,
        from: LaneKey,
        to: LaneKey,
        jobs: impl IntoIterator<Item = (QueueKey, QueueKey)>,
    ) {
        let Some(queue) = self.lanes.get_mut(&from) else { return };
        let before = queue.state();
        let found: BTreeSet<QueueKey> =
            jobs.into_iter().filter(|(old, _)| queue.remove(*old)).map(|(_, new)| new).collect();
        let after = queue.state();
        let moved = found.len();
        self.move_lane(from, before, after);
        // They are counted in before they are counted out, so that a last start stays known of which both lanes are.
        self.push_run(to, found);
        self.count_out(from, moved, before);
    }

    /// Counts jobs that a lane has got. `after` is how it stands now.
    pub(super) fn count(&mut self, lane: LaneKey, added: usize, after: Option<LaneState>) {
        self.count += added;
        let counts = self.counts.entry((lane.definition(), lane.pinned_to())).or_default();
        counts.jobs += added;
        if let Some(held) = counts.held_as(after) {
            *held += added;
        }
    }

    /// Counts out jobs that a lane has lost. `before` is how it stood.
    pub(super) fn count_out(&mut self, lane: LaneKey, removed: usize, before: Option<LaneState>) {
        self.count -= removed;
        let of = (lane.definition(), lane.pinned_to());
        if let Some(counts) = self.counts.get_mut(&of) {
            counts.jobs -= removed;
            if let Some(held) = counts.held_as(before) {
                *held -= removed;
            }
            if counts.jobs == 0 {
                self.counts.remove(&of);
                self.last_starts.remove(&of);
            }
        }
    }

    /// Parks a lane until [`Self::unpark`].
    pub fn park(&mut self, lane: LaneKey, parked_for: ParkedFor) {
        self.set_parked(lane, Some(Parked::Workers(parked_for)));
    }

    /// Parks a lane with limits until one of these workers has a free slot.
    pub fn park_for_slot(&mut self, lane: LaneKey, parked_for: ParkedFor) {
        self.set_parked(lane, Some(Parked::Slot(parked_for)));
    }

    /// Parks a lane until one of these workers has a free slot and enough resources left.
    pub fn park_for_resources(&mut self, lane: LaneKey, parked_for: ParkedFor) {
        self.set_parked(lane, Some(Parked::Resources(parked_for)));
    }

    /// Parks a lane until the limit has a permit.
    pub fn park_under(&mut self, lane: LaneKey, limit: LimitNo) {
        self.set_parked(lane, Some(Parked::Permits(limit)));
    }

    /// Parks a lane until the rate allows a start.
    pub fn park_under_rate(&mut self, lane: LaneKey, rate: LimitNo) {
        self.set_parked(lane, Some(Parked::Rate(rate)));
    }

    /// Parks a lane with jobs for this reason, or unparks it.
    pub(super) fn set_parked(&mut self, lane: LaneKey, parked: Option<Parked>) {
        let Some(queue) = self.lanes.get_mut(&lane) else { return };
        let Some(before) = queue.state().filter(|before| before.parked != parked) else { return };
        queue.parked = parked;
        let (after, waiting) = (LaneState { parked, ..before }, queue.len());
        self.take_out(lane, before);
        self.put_in(lane, after);
        if let Some(counts) = self.counts.get_mut(&(lane.definition(), lane.pinned_to())) {
            if let Some(before) = counts.held_as(Some(before)) {
                *before -= waiting;
            }
            if let Some(after) = counts.held_as(Some(after)) {
                *after += waiting;
            }
        }
    }

    /// Moves a lane that has got or lost jobs to where its first job belongs, and removes it if it has none left.
    pub(super) fn move_lane(&mut self, lane: LaneKey, before: Option<LaneState>, after: Option<LaneState>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.take_out(lane, before);
        }
        let Some(after) = after else {
            self.remove_lane(lane);
            return;
        };
        self.put_in(lane, after);
        match after.parked {
            // It may go before the lane that was unparked last.
            Some(Parked::Permits(limit) | Parked::Rate(limit)) => self.recheck_limit(limit),
            // It may go before a job that a worker is set aside for.
            Some(Parked::Workers(_) | Parked::Slot(_) | Parked::Resources(_))
                if before.is_some_and(|before| after.head < before.head) =>
            {
                self.unpark_lane(lane);
            }
            Some(Parked::Workers(parked_for)) => {
                if let Some(last) = self.last_woken.get_mut(&parked_for) {
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

    /// The jobs of this lane may not start: its definition is paused, or they are members of paused batches.
    #[must_use]
    pub fn is_lane_paused(&self, lane: LaneKey) -> bool {
        lane.is_paused() || self.is_paused(lane.definition())
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
        let is_parked = |queue: &Lane| queue.parked == Some(Parked::Paused);
        let changed =
            self.lanes.iter().filter(|(lane, queue)| is_parked(queue) != self.is_lane_paused(**lane));
        let mut changed: Vec<LaneKey> = changed.map(|(lane, _)| *lane).collect();
        changed.sort_unstable();
        let (newly, resumed): (Vec<LaneKey>, Vec<LaneKey>) =
            changed.into_iter().partition(|lane| self.is_lane_paused(*lane));
        newly.iter().for_each(|lane| self.set_parked(*lane, Some(Parked::Paused)));
        resumed.into_iter().for_each(|lane| self.unpark_lane(lane));
        newly
    }

    /// Unparks the next lane for each of the workers that [`Self::recheck_slots`] named. One that waits for a free slot only stays parked as long as
    /// `has_free_slot` says that none of them has one for this position. One that waits for resources is looked at in any case: it may wait for a
    /// slot now.
    pub fn unpark_rechecked_slots(&mut self, has_free_slot: impl Fn(ParkedFor, QueueKey) -> bool) {
        while let Some(parked_for) = self.slots_to_recheck.pop_first() {
            let Some(first) = self.waiting_for_slot.get(&parked_for).and_then(Heads::first) else { continue };
            let for_slot = Some(Parked::Slot(parked_for));
            let waits_for_slot = |lane| self.lanes.get(lane).is_some_and(|queue| queue.parked == for_slot);
            let is_in_vain = [first.lane, first.holder].iter().all(waits_for_slot)
                && !has_free_slot(parked_for, first.position);
            if !is_in_vain {
                self.unpark_first(first);
            }
        }
    }

    /// Unparks a lane and the one that holds its position.
    pub(super) fn unpark_first(&mut self, first: First) {
        self.unpark_lane(first.lane);
        if first.holder != first.lane {
            self.unpark_lane(first.holder);
        }
    }

    /// Unparks a lane, whatever it waits for.
    pub fn unpark_lane(&mut self, lane: LaneKey) {
        self.set_parked(lane, None);
    }

    /// Unparks the lane after this one, of those that wait for a slot of these workers, if `has_free_slot` says that one of them has one for
    /// its position.
    pub fn unpark_slot_after(
        &mut self,
        lane: LaneKey,
        parked_for: ParkedFor,
        has_free_slot: impl Fn(ParkedFor, QueueKey) -> bool,
    ) {
        let next = self.head(lane).and_then(|head| self.waiting_for_slot.get(&parked_for)?.after(lane, head));
        if let Some(next) = next.filter(|next| has_free_slot(parked_for, next.position)) {
            self.unpark_first(next);
        }
    }

    /// Unparks the lanes with limits that are parked for these workers. Those without limits follow by [`Self::wake_next_for_room`].
    pub fn unpark(&mut self, parked_for: ParkedFor) {
        for lane in self.limited_waiting_for_room.get(&parked_for).cloned().unwrap_or_default() {
            self.unpark_lane(lane);
        }
        if self.waiting_for_room.contains_key(&parked_for) {
            self.last_woken.insert(parked_for, None);
        }
        self.recheck_slots(parked_for);
    }

    /// Unparks the next lane without limits for each of the workers that were named to [`Self::unpark`], as long as `has_room` says that
    /// one of them has room for its first job. Each lane is woken once, unless its first job changes.
    pub fn wake_next_for_room(&mut self, has_room: impl Fn(ParkedFor, QueueKey) -> bool) {
        let mut after = None;
        while let Some((parked_for, last)) = self.woken_after(after) {
            after = Some(parked_for);
            let next = self.waiting_for_room.get(&parked_for).and_then(|lanes| {
                let from = last.map_or(Bound::Unbounded, Bound::Excluded);
                lanes.range((from, Bound::Unbounded)).next().copied()
            });
            match next.filter(|(key, _)| has_room(parked_for, *key)) {
                Some(next) => {
                    self.last_woken.insert(parked_for, Some(next));
                    self.unpark_lane(next.1);
                }
                None => drop(self.last_woken.remove(&parked_for)),
            }
        }
    }

    fn woken_after(&self, after: Option<ParkedFor>) -> Option<(ParkedFor, Option<(QueueKey, LaneKey)>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.last_woken.range((from, Bound::Unbounded)).next().map(|(parked_for, last)| (*parked_for, *last))
    }

    /// Adds a lane to the set that its state says.
    pub(super) fn put_in(&mut self, lane: LaneKey, LaneState { head, turn, parked }: LaneState) {
        match parked {
            None if lane.is_limited() => self.limited.insert(lane, head, turn),
            None => self.heads.insert(lane, head, turn),
            Some(Parked::Workers(parked_for)) if lane.is_limited() => {
                self.limited_waiting_for_room.entry(parked_for).or_default().insert(lane);
                self.parked_for_free_slot.insert((head, lane));
            }
            Some(Parked::Workers(parked_for)) => {
                if self.waiting_for_room.entry(parked_for).or_default().insert((head, lane)) {
                    *self.parked_priorities.entry(head.priority()).or_default() += 1;
                }
            }
            Some(Parked::Slot(parked_for)) => {
                self.waiting_for_slot.entry(parked_for).or_default().insert(lane, head, turn);
                self.slot_only.insert((head, lane));
            }
            Some(Parked::Resources(parked_for)) => {
                self.waiting_for_slot.entry(parked_for).or_default().insert(lane, head, turn);
                self.waiting_for_resources.insert((head, lane));
            }
            Some(Parked::Permits(limit) | Parked::Rate(limit)) => match self.limits.entry(limit) {
                Entry::Occupied(mut heads) => heads.get_mut().insert(lane, head, turn),
                Entry::Vacant(none) => drop(none.insert(HeadsOfLimit::One { lane, head, turn })),
            },
            Some(Parked::Paused) => {}
        }
    }

    /// Removes a lane from the set that its state says.
    pub(super) fn take_out(&mut self, lane: LaneKey, LaneState { head, turn, parked }: LaneState) {
        match parked {
            None if lane.is_limited() => self.limited.remove(lane, head, turn),
            None => self.heads.remove(lane, head, turn),
            Some(Parked::Workers(parked_for)) if lane.is_limited() => {
                self.parked_for_free_slot.remove(&(head, lane));
                if let Some(lanes) = self.limited_waiting_for_room.get_mut(&parked_for) {
                    lanes.remove(&lane);
                    if lanes.is_empty() {
                        self.limited_waiting_for_room.remove(&parked_for);
                    }
                }
            }
            Some(Parked::Workers(parked_for)) => {
                let Some(lanes) = self.waiting_for_room.get_mut(&parked_for) else { return };
                let was_here = lanes.remove(&(head, lane));
                if lanes.is_empty() {
                    self.waiting_for_room.remove(&parked_for);
                }
                if was_here {
                    self.drop_parked_priority(head.priority());
                }
            }
            Some(Parked::Slot(parked_for) | Parked::Resources(parked_for)) => {
                self.slot_only.remove(&(head, lane));
                self.waiting_for_resources.remove(&(head, lane));
                if let Some(heads) = self.waiting_for_slot.get_mut(&parked_for) {
                    heads.remove(lane, head, turn);
                    if heads.is_empty() {
                        self.waiting_for_slot.remove(&parked_for);
                    }
                }
            }
            Some(Parked::Permits(limit) | Parked::Rate(limit)) => {
                if let Entry::Occupied(mut heads) = self.limits.entry(limit)
                    && heads.get_mut().remove(lane, head, turn) == Left::Nothing
                {
                    heads.remove();
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
