//! Who waits for a slot: one ordered lane per definition, and one per worker for jobs that only it may run.
//!
//! Jobs of one lane are alike to every worker, so a lane whose first job cannot be placed is *parked* as a whole until the fleet
//! changes, and the lanes behind it are not held up. Over all lanes the order is DESIGN.md's: priority, then pinned, then due time,
//! then id.
//!
//! ```text
//! heads   (place of its first job, lane), ordered      ──▶ the next job to place
//! lanes   Definition(0): p1 p2 p3 …   Pinned(7): p1 …
//! parked  lanes that nobody can take now
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use protocol::{JobId, Timestamp, WorkerId};

use crate::definitions::DefinitionNo;

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Jobs of this definition that any worker may run.
    Definition(DefinitionNo),
    /// Jobs that only this worker may run.
    Pinned(WorkerId),
}

/// Where a job stands in the order of all that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    priority: Reverse<i8>,
    unpinned: bool,
    due: Timestamp,
    job: JobId,
}

impl Place {
    /// The place of a job.
    #[must_use]
    pub const fn new(priority: i8, pinned: bool, due: Timestamp, job: JobId) -> Self {
        Self { priority: Reverse(priority), unpinned: !pinned, due, job }
    }

    /// Whose place it is.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }
}

/// All jobs that wait for a slot.
#[derive(Debug, Default)]
pub struct Ready {
    lanes: BTreeMap<LaneKey, BTreeSet<Place>>,
    heads: BTreeSet<(Place, LaneKey)>,
    parked: BTreeSet<LaneKey>,
}

impl Ready {
    /// Lets a job wait in this lane.
    pub fn push(&mut self, lane: LaneKey, place: Place) {
        let queue = self.lanes.entry(lane).or_default();
        let old_head = queue.first().copied();
        queue.insert(place);
        if !self.parked.contains(&lane) && old_head.is_none_or(|head| place < head) {
            if let Some(head) = old_head {
                self.heads.remove(&(head, lane));
            }
            self.heads.insert((place, lane));
        }
    }

    /// Takes a job out of its lane. Returns whether it was there.
    pub fn remove(&mut self, lane: LaneKey, place: Place) -> bool {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return false;
        };
        let found = queue.remove(&place);
        let next = queue.first().copied();
        if next.is_none() {
            self.lanes.remove(&lane);
            self.parked.remove(&lane);
        }
        if self.heads.remove(&(place, lane))
            && let Some(next) = next
        {
            self.heads.insert((next, lane));
        }
        found
    }

    /// The first job of all lanes that are not parked.
    #[must_use]
    pub fn first(&self) -> Option<(LaneKey, JobId)> {
        self.heads.first().map(|(place, lane)| (*lane, place.job))
    }

    /// Sets a lane aside until [`Self::unpark`].
    pub fn park(&mut self, lane: LaneKey) {
        if let Some(head) = self.lanes.get(&lane).and_then(|queue| queue.first()) {
            self.heads.remove(&(*head, lane));
            self.parked.insert(lane);
        }
    }

    /// Brings all lanes back.
    pub fn unpark(&mut self) {
        for lane in core::mem::take(&mut self.parked) {
            if let Some(head) = self.lanes.get(&lane).and_then(|queue| queue.first()) {
                self.heads.insert((*head, lane));
            }
        }
    }

    /// Takes everybody out of a lane, in order.
    pub fn take_lane(&mut self, lane: LaneKey) -> Vec<JobId> {
        let Some(queue) = self.lanes.remove(&lane) else { return Vec::new() };
        self.parked.remove(&lane);
        if let Some(head) = queue.first() {
            self.heads.remove(&(*head, lane));
        }
        queue.iter().map(Place::job).collect()
    }

    /// Whether anybody waits, parked or not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lanes with how many wait in each.
    pub fn lanes(&self) -> impl Iterator<Item = (LaneKey, usize)> {
        self.lanes.iter().map(|(lane, queue)| (*lane, queue.len()))
    }

    /// Whether a job waits at this place.
    #[must_use]
    pub fn contains(&self, lane: LaneKey, place: Place) -> bool {
        self.lanes.get(&lane).is_some_and(|queue| queue.contains(&place))
    }

    /// What is wrong with the lanes' own book-keeping: for the audit.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        if self.lanes.values().any(BTreeSet::is_empty) {
            faults.push("a lane is empty");
        }
        let heads: BTreeSet<(Place, LaneKey)> = self
            .lanes
            .iter()
            .filter(|(lane, _)| !self.parked.contains(lane))
            .filter_map(|(lane, queue)| queue.first().map(|head| (*head, *lane)))
            .collect();
        if heads != self.heads {
            faults.push("the heads are not the lanes' first jobs");
        }
        if self.parked.iter().any(|lane| !self.lanes.contains_key(lane)) {
            faults.push("a lane is parked that does not exist");
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LaneKey = LaneKey::Definition(DefinitionNo(0));
    const B: LaneKey = LaneKey::Definition(DefinitionNo(1));

    fn place(priority: i8, due: i64, job: u64) -> Place {
        Place::new(priority, false, Timestamp(due), JobId(job))
    }

    fn drain(ready: &mut Ready) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some((place, lane)) = ready.heads.first().copied() {
            ready.remove(lane, place);
            order.push(place.job.0);
            assert!(ready.faults().is_empty());
        }
        order
    }

    #[test]
    fn priority_goes_before_due_time_and_due_time_before_id() {
        let mut ready = Ready::default();
        for (lane, place) in
            [(A, place(0, 5, 3)), (B, place(0, 5, 2)), (A, place(9, 8, 9)), (B, place(0, 1, 7))]
        {
            ready.push(lane, place);
        }
        assert_eq!(drain(&mut ready), [9, 7, 2, 3]);
    }

    #[test]
    fn a_parked_lane_does_not_hold_up_the_others() {
        let mut ready = Ready::default();
        ready.push(A, place(9, 0, 1));
        ready.push(B, place(0, 0, 2));
        ready.park(A);
        assert_eq!(ready.first(), Some((B, JobId(2))));
        ready.push(A, place(10, 0, 3));
        assert_eq!(ready.first(), Some((B, JobId(2))));
        ready.unpark();
        assert_eq!(drain(&mut ready), [3, 1, 2]);
    }

    #[test]
    fn a_pinned_job_goes_before_an_earlier_one_of_the_same_priority() {
        let mut ready = Ready::default();
        ready.push(A, place(0, 1, 1));
        ready.push(LaneKey::Pinned(WorkerId(4)), Place::new(0, true, Timestamp(2), JobId(2)));
        assert_eq!(drain(&mut ready), [2, 1]);
    }
}
