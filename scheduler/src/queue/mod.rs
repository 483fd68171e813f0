//! Jobs that wait for a slot: an ordered lane per definition, and one per worker and definition for pinned
//! jobs.
//!
//! Jobs of one lane have the same requirements. If no worker can take the first job of a lane, the lane is
//! *parked* until capacity grows, and the other lanes go on. The order over all lanes is
//! docs/design/scheduling.md, Q4: priority, then pinned jobs, then due time, then id. `ageing` lets the priority grow with the wait.
//!
//! A lane with limits waits in an order of its own, since it takes free slots only. Lanes that wait for a limit, or for a free slot only,
//! are woken one by one in their order, so an event costs the same however many wait.
//!
//! ```text
//! lanes   Definition(0): k1 k2 k3 …   Pinned(7, 0): k1 …   each with the reason why it is parked, if it is
//! heads   (key of its first job, lane) of those that are not parked, ordered   ──▶ the next job to place
//! limited likewise, of lanes with limits
//! others  the parked lanes, by what wakes them: workers, a free slot, a limit
//! ```

mod ageing;
mod audit;
mod counts;
mod heads;
mod heads_of_limit;
mod key;
mod lane;
mod parking;
mod queue_key;
mod selection;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use protocol::{JobId, Timestamp, WorkerId};

use crate::ids::{DefinitionNo, NeedId};
use crate::limits::LimitNo;
use crate::table::{Seed, Table, shrink};
pub use ageing::{AgedPriority, PriorityAgeing};
pub use counts::Counts;
pub use heads::First;
use heads::Heads;
use heads_of_limit::HeadsOfLimit;
pub use key::LaneKey;
use lane::{Lane, LaneState};
pub use queue_key::QueueKey;

/// All jobs that wait for a slot.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    lanes: Table<LaneKey, Lane>,
    /// Those of them that are pinned to a worker.
    pinned: BTreeSet<(WorkerId, LaneKey)>,
    /// Lanes without limits that are not parked.
    heads: Heads,
    /// Lanes with limits that are not parked. They take free slots only.
    limited: Heads,
    /// Definitions whose lanes are all parked until somebody resumes them. Lanes of paused batches are parked beside them.
    paused: BTreeSet<DefinitionNo>,
    /// Parked lanes with limits by the workers that may wake them: a worker that grows costs nothing for lanes that it cannot run.
    limited_waiting_for_room: BTreeMap<ParkedFor, BTreeSet<LaneKey>>,
    /// Parked lanes without limits by the workers that may wake them, in the order of their first jobs. They are woken one by one, so a
    /// worker that grows costs the same however many wait for it.
    waiting_for_room: BTreeMap<ParkedFor, BTreeSet<(QueueKey, LaneKey)>>,
    /// Workers that may have room for lanes in `waiting_for_room`, with the last lane that was woken for them.
    last_woken: BTreeMap<ParkedFor, Option<(QueueKey, LaneKey)>>,
    /// Number of lanes in `waiting_for_room` by the priority of their first job; no entry is zero.
    parked_priorities: BTreeMap<AgedPriority, usize>,
    /// Lanes that wait for a free slot, or for a free slot with resources, by the workers that may run them.
    waiting_for_slot: BTreeMap<ParkedFor, Heads>,
    /// Those that wait for a free slot only, by their first job.
    slot_only: BTreeSet<(QueueKey, LaneKey)>,
    /// Lanes that take free slots only and are parked for workers, by their first job: a worker that is full may have a slot for them once
    /// its backlog is empty.
    parked_for_free_slot: BTreeSet<(QueueKey, LaneKey)>,
    /// Lanes that wait for a free slot with resources, by their first job.
    waiting_for_resources: BTreeSet<(QueueKey, LaneKey)>,
    /// Lanes that wait for a limit.
    limits: Table<LimitNo, HeadsOfLimit>,
    /// Limits that may have room for a lane that waits for them, or for which a better lane waits now.
    limits_to_recheck: BTreeSet<LimitNo>,
    /// Workers of which one may have a free slot for a lane that waits for it.
    slots_to_recheck: BTreeSet<ParkedFor>,
    /// Counts turns of lanes.
    turns: u64,
    /// Waiting jobs of each definition, by the worker that they are pinned to.
    counts: BTreeMap<(DefinitionNo, Option<WorkerId>), Counts>,
    /// Last start of a job that takes free slots only, by definition and worker as in `counts`, while others of them wait.
    last_starts: BTreeMap<(DefinitionNo, Option<WorkerId>), Timestamp>,
    count: usize,
}

/// Workers that may take the jobs of a parked lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParkedFor {
    /// Workers that meet this need.
    Need(NeedId),
    /// This worker.
    Worker(WorkerId),
}

/// The reason why a lane is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parked {
    /// No worker can take its first job.
    Workers(ParkedFor),
    /// It has limits, and the workers that could take its first job have no free slot.
    Slot(ParkedFor),
    /// No worker that could take its first job has enough left of the resources that it reserves.
    Resources(ParkedFor),
    /// The limit has no permit left.
    Permits(LimitNo),
    /// The rate allows no start now.
    Rate(LimitNo),
    /// Its definition or the batch of its jobs is paused. It stands in no index.
    Paused,
}

impl ReadyQueue {
    /// No jobs; `seed` is that of its tables.
    pub fn new(seed: Seed) -> Self {
        Self { lanes: Table::with_hasher(seed), limits: Table::with_hasher(seed), ..Self::default() }
    }

    /// Returns memory after a long queue has emptied.
    pub fn shrink_tables(&mut self) {
        shrink(&mut self.lanes);
        shrink(&mut self.limits);
    }

    /// Adds a job to a lane.
    pub fn push(&mut self, lane: LaneKey, key: QueueKey) {
        let queue = self.lane_mut(lane);
        let before = queue.state();
        queue.insert(key);
        let after = queue.state();
        self.count(lane, 1, after);
        self.move_lane(lane, before, after);
    }

    /// Adds many jobs to a lane at the cost of one.
    pub fn push_run(&mut self, lane: LaneKey, run: BTreeSet<QueueKey>) {
        if run.is_empty() {
            return;
        }
        let added = run.len();
        let queue = self.lane_mut(lane);
        let before = queue.state();
        queue.push_run(run);
        let after = queue.state();
        self.count(lane, added, after);
        self.move_lane(lane, before, after);
    }

    /// Removes a job from its lane. Returns false if it was not there.
    pub fn remove(&mut self, lane: LaneKey, key: QueueKey) -> bool {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return false;
        };
        let before = queue.state();
        let found = queue.remove(key);
        let after = queue.state();
        if found {
            self.count_out(lane, 1, before);
        }
        self.move_lane(lane, before, after);
        found
    }

    /// Removes a job that starts at this time: its lane has had its turn.
    pub fn start(&mut self, lane: LaneKey, key: QueueKey, at: Timestamp) {
        let of = (lane.definition(), lane.pinned_to());
        if lane.is_limited() && self.counts.get(&of).is_some_and(|counts| counts.jobs > 1) {
            self.last_starts.insert(of, at);
        }
        let Some(queue) = self.lanes.get_mut(&lane) else { return };
        let before = queue.state();
        let found = queue.remove(key);
        if lane.takes_turns() {
            self.turns += 1;
            queue.turn = self.turns;
        }
        let after = queue.state();
        if found {
            self.count_out(lane, 1, before);
        }
        self.move_lane(lane, before, after);
    }

    /// The first job of all lanes that are not parked.
    #[must_use]
    pub fn first(&self) -> Option<(LaneKey, JobId)> {
        let lane = self.next()?.lane;
        Some((lane, self.head(lane)?.job))
    }

    /// The next of the lanes that are not parked.
    #[must_use]
    pub fn next(&self) -> Option<First> {
        let firsts = [self.heads.first(), self.limited.first()];
        firsts.into_iter().flatten().min_by_key(|first| first.position)
    }

    /// The first lane without limits that is not parked, with its position.
    #[must_use]
    pub fn first_unlimited(&self) -> Option<(QueueKey, LaneKey)> {
        self.heads.first().map(|first| (first.position, first.lane))
    }

    /// The lane with limits that is not parked and has the first job, with its position.
    #[must_use]
    pub fn first_limited(&self) -> Option<(QueueKey, LaneKey)> {
        self.limited.first().map(|first| (first.position, first.holder))
    }

    /// The first of the lanes that wait for a free slot only.
    #[must_use]
    pub fn first_slot_waiter(&self) -> Option<(QueueKey, LaneKey)> {
        self.slot_only.first().copied()
    }

    /// The first job of a lane.
    #[must_use]
    pub fn head(&self, lane: LaneKey) -> Option<QueueKey> {
        self.lanes.get(&lane).and_then(Lane::first)
    }

    /// The highest priority of the jobs without limits, parked lanes included.
    #[must_use]
    pub fn highest_priority(&self) -> Option<AgedPriority> {
        let parked = self.parked_priorities.last_key_value().map(|(priority, _)| *priority);
        parked.max(self.heads.first_key().map(|key| key.priority()))
    }

    /// The first jobs of those lanes without limits that `takes` accepts with their first job, in order, parked lanes included; at most
    /// `count` of each lane.
    #[must_use]
    pub fn first_keys_of_lanes(
        &self,
        count: usize,
        mut takes: impl FnMut(LaneKey, QueueKey) -> bool,
    ) -> Vec<(LaneKey, QueueKey)> {
        let lanes = self.heads.lanes().chain(self.parked_unlimited());
        let lanes = lanes.filter_map(|lane| Some((lane, self.lanes.get(&lane)?)));
        let lanes = lanes.filter(|(lane, queue)| queue.first().is_some_and(|head| takes(*lane, head)));
        let mut first_keys: Vec<(LaneKey, QueueKey)> = lanes
            .flat_map(|(lane, queue)| queue.first_keys(count).into_iter().map(move |key| (lane, key)))
            .collect();
        first_keys.sort_unstable_by_key(|(_, key)| *key);
        first_keys
    }

    fn parked_unlimited(&self) -> impl Iterator<Item = LaneKey> {
        self.waiting_for_room.values().flatten().map(|(_, lane)| *lane)
    }

    /// The last start of a job of this definition, on the worker to which the lane is pinned; absent if no other one waited then, or the lane
    /// has no limits.
    #[must_use]
    pub fn last_start(&self, lane: LaneKey) -> Option<Timestamp> {
        self.last_starts.get(&(lane.definition(), lane.pinned_to())).copied()
    }

    /// A lane that waits for this limit may go on, if it has room.
    pub fn recheck_limit(&mut self, limit: LimitNo) {
        if self.limits.contains_key(&limit) {
            self.limits_to_recheck.insert(limit);
        }
    }

    /// A lane that waits for a slot of these workers may go on, if one is free.
    pub fn recheck_slots(&mut self, parked_for: ParkedFor) {
        if self.waiting_for_slot.contains_key(&parked_for) {
            self.slots_to_recheck.insert(parked_for);
        }
    }

    /// A parked lane of the same definition whose turn comes before that of this lane, of those that wait for a slot of these workers or
    /// for one of these limits.
    #[must_use]
    pub fn parked_with_earlier_turn(
        &self,
        lane: LaneKey,
        parked_for: ParkedFor,
        limits: impl IntoIterator<Item = LimitNo>,
    ) -> Option<LaneKey> {
        let queue = self.lanes.get(&lane)?;
        let priority = queue.first()?.own_priority();
        let for_slot = self.waiting_for_slot.get(&parked_for);
        let for_slot = for_slot.and_then(|heads| heads.first_turn(lane.definition(), priority));
        let under_limits = limits.into_iter().filter_map(|limit| self.limits.get(&limit));
        let under_limits = under_limits.filter_map(|heads| heads.first_turn(lane.definition(), priority));
        let first = under_limits.chain(for_slot).min();
        first.filter(|(turn, _)| *turn < queue.turn).map(|(_, earlier)| earlier)
    }

    /// Takes a limit that is to be looked at again.
    pub fn take_limit_to_recheck(&mut self) -> Option<LimitNo> {
        self.limits_to_recheck.pop_first()
    }

    /// Unparks the next lane that waits for this limit.
    pub fn unpark_next_under(&mut self, limit: LimitNo) {
        if let Some(first) = self.limits.get(&limit).and_then(HeadsOfLimit::first) {
            self.unpark_first(first);
        }
    }

    /// Unparks all lanes but those that wait for a limit, and those of paused definitions.
    pub fn unpark_all(&mut self) {
        let stays = |parked: Option<Parked>| {
            matches!(parked, None | Some(Parked::Permits(_) | Parked::Rate(_) | Parked::Paused))
        };
        let woken = self.lanes.iter().filter(|(_, queue)| !stays(queue.parked));
        let lanes: Vec<LaneKey> = woken.map(|(lane, _)| *lane).collect();
        lanes.into_iter().for_each(|lane| self.unpark_lane(lane));
    }

    /// Removes all jobs pinned to this worker.
    pub fn take_pinned(&mut self, only: WorkerId) -> Vec<JobId> {
        self.pinned_lanes(only).into_iter().flat_map(|lane| self.take_lane(lane)).collect()
    }

    /// The lanes of jobs pinned to this worker.
    #[must_use]
    pub fn pinned_lanes(&self, only: WorkerId) -> Vec<LaneKey> {
        let lanes = self.pinned.range((only, LaneKey::FIRST)..);
        lanes.take_while(|(worker, _)| *worker == only).map(|(_, lane)| *lane).collect()
    }

    /// Removes a lane and returns its jobs in order.
    pub fn take_lane(&mut self, lane: LaneKey) -> Vec<JobId> {
        let Some(queue) = self.remove_lane(lane) else { return Vec::new() };
        let before = queue.state();
        if let Some(before) = before {
            self.take_out(lane, before);
        }
        self.count_out(lane, queue.len(), before);
        queue.into_keys().iter().map(QueueKey::job).collect()
    }

    /// No job waits, parked lanes included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Number of waiting jobs.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Number of waiting jobs of this definition.
    #[must_use]
    pub fn len_of(&self, definition: DefinitionNo) -> usize {
        let all = (definition, None)..=(definition, Some(WorkerId(u64::MAX)));
        self.counts.range(all).map(|(_, counts)| counts.jobs).sum()
    }

    /// Waiting jobs by definition and by the worker that they are pinned to.
    pub fn counts(&self) -> impl Iterator<Item = (DefinitionNo, Option<WorkerId>, Counts)> {
        self.counts.iter().map(|((definition, pinned_to), counts)| (*definition, *pinned_to, *counts))
    }

    /// Number of jobs of a lane.
    #[must_use]
    pub fn len_of_lane(&self, lane: LaneKey) -> usize {
        self.lanes.get(&lane).map_or(0, Lane::len)
    }

    /// Number of jobs of a lane before this key; `max` if there are more. Walks those that it counts: it answers a request of an operator
    /// for one job.
    #[must_use]
    pub fn count_before(&self, lane: LaneKey, key: QueueKey, max: usize) -> usize {
        self.lanes.get(&lane).map_or(0, |queue| queue.count_before(key, max))
    }

    /// All lanes with their number of jobs, in no particular order.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneKey, usize)> {
        self.lanes.iter().map(|(lane, queue)| (*lane, queue.len()))
    }

    /// A job waits under this key.
    #[must_use]
    pub fn contains(&self, lane: LaneKey, key: QueueKey) -> bool {
        self.lanes.get(&lane).is_some_and(|queue| queue.contains(key))
    }
}

#[cfg(test)]
mod tests;
