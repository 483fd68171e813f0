//! Who waits for a slot: one ordered lane per definition, and one per worker and definition for jobs that only it may run.
//!
//! Jobs of one lane are alike to every worker, so a lane whose first job cannot be placed is *parked* as a whole until the fleet
//! changes, and the lanes behind it are not held up. Over all lanes the order is DESIGN.md's: priority, then pinned, then due time,
//! then id.
//!
//! ```text
//! heads   (place of its first job, lane), ordered      ──▶ the next job to place
//! lanes   Definition(0): p1 p2 p3 …   Pinned(7, 0): p1 …
//! parked  lanes that nobody can take now
//! ```

mod key;
mod lane;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use protocol::{JobId, Timestamp, WorkerId};

use crate::definitions::DefinitionNo;
pub use key::LaneKey;
use lane::Lane;

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

    /// The priority of the job.
    #[must_use]
    pub const fn priority(&self) -> i8 {
        self.priority.0
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
    lanes: BTreeMap<LaneKey, Lane>,
    heads: BTreeSet<(Place, LaneKey)>,
    parked: BTreeSet<LaneKey>,
}

impl Ready {
    /// Lets a job wait in this lane.
    pub fn push(&mut self, lane: LaneKey, place: Place) {
        let queue = self.lanes.entry(lane).or_default();
        let old_head = queue.first();
        queue.insert(place);
        self.lead(lane, old_head, place);
    }

    /// Lets many jobs wait in this lane at once, at the price of one.
    pub fn admit(&mut self, lane: LaneKey, run: BTreeSet<Place>) {
        let Some(first) = run.first().copied() else { return };
        let queue = self.lanes.entry(lane).or_default();
        let old_head = queue.first();
        queue.admit(run);
        self.lead(lane, old_head, first);
    }

    /// Takes a job out of its lane. Returns whether it was there.
    pub fn remove(&mut self, lane: LaneKey, place: Place) -> bool {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return false;
        };
        let found = queue.remove(place);
        let next = queue.first();
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

    /// The highest priority of all that wait, parked or not.
    #[must_use]
    pub fn highest_priority(&self) -> Option<i8> {
        let parked = self.parked.iter().filter_map(|lane| self.lanes.get(lane)?.first());
        parked.chain(self.heads.first().map(|(place, _)| *place)).map(|place| place.priority()).max()
    }

    /// The first of all that wait, parked or not, in order: at most so many of each lane.
    #[must_use]
    pub fn firsts_of_lanes(&self, count: usize) -> Vec<(LaneKey, Place)> {
        let lanes = self.lanes.iter();
        let mut firsts: Vec<(LaneKey, Place)> = lanes
            .flat_map(|(lane, queue)| queue.firsts(count).into_iter().map(|place| (*lane, place)))
            .collect();
        firsts.sort_unstable_by_key(|(_, place)| *place);
        firsts
    }

    /// Sets a lane aside until [`Self::unpark`].
    pub fn park(&mut self, lane: LaneKey) {
        if let Some(head) = self.lanes.get(&lane).and_then(Lane::first) {
            self.heads.remove(&(head, lane));
            self.parked.insert(lane);
        }
    }

    /// Brings all lanes back.
    pub fn unpark(&mut self) {
        for lane in core::mem::take(&mut self.parked) {
            if let Some(head) = self.lanes.get(&lane).and_then(Lane::first) {
                self.heads.insert((head, lane));
            }
        }
    }

    /// Takes out everybody whom only this worker may run.
    pub fn take_pinned(&mut self, only: WorkerId) -> Vec<JobId> {
        let all = LaneKey::Pinned(only, DefinitionNo(0))..=LaneKey::Pinned(only, DefinitionNo(u32::MAX));
        let lanes: Vec<LaneKey> = self.lanes.range(all).map(|(lane, _)| *lane).collect();
        lanes.into_iter().flat_map(|lane| self.take_lane(lane)).collect()
    }

    /// Takes everybody out of a lane, in order.
    fn take_lane(&mut self, lane: LaneKey) -> Vec<JobId> {
        let Some(queue) = self.lanes.remove(&lane) else { return Vec::new() };
        self.parked.remove(&lane);
        if let Some(head) = queue.first() {
            self.heads.remove(&(head, lane));
        }
        queue.into_places().iter().map(Place::job).collect()
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
        self.lanes.get(&lane).is_some_and(|queue| queue.contains(place))
    }

    /// What is wrong with the lanes' own book-keeping: for the audit.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        if self.lanes.values().any(Lane::is_empty) {
            faults.push("a lane is empty");
        }
        if !self.lanes.values().all(Lane::is_in_order) {
            faults.push("a run is not where its first job says");
        }
        let heads: BTreeSet<(Place, LaneKey)> = self
            .lanes
            .iter()
            .filter(|(lane, _)| !self.parked.contains(lane))
            .filter_map(|(lane, queue)| queue.first().map(|head| (head, *lane)))
            .collect();
        if heads != self.heads {
            faults.push("the heads are not the lanes' first jobs");
        }
        if self.parked.iter().any(|lane| !self.lanes.contains_key(lane)) {
            faults.push("a lane is parked that does not exist");
        }
        faults
    }

    /// Somebody new waits: whether they are the first of their lane now.
    fn lead(&mut self, lane: LaneKey, old_head: Option<Place>, place: Place) {
        if !self.parked.contains(&lane) && old_head.is_none_or(|head| place < head) {
            if let Some(head) = old_head {
                self.heads.remove(&(head, lane));
            }
            self.heads.insert((place, lane));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn those_who_came_together_are_in_order_among_the_others() {
        let run = |jobs: &[(i8, u64)]| jobs.iter().map(|(priority, job)| place(*priority, 1, *job)).collect();
        let mut ready = Ready::default();
        ready.push(A, place(0, 1, 4));
        ready.admit(A, run(&[(0, 1), (0, 2), (0, 3), (5, 9)]));
        ready.admit(A, run(&[(0, 5), (0, 6)]));
        ready.push(B, place(0, 0, 7));
        assert_eq!(ready.lanes().map(|(_, waiting)| waiting).sum::<usize>(), 8);
        assert!(ready.remove(A, place(0, 1, 2)), "out of the middle");
        assert!(!ready.remove(A, place(0, 1, 2)));
        assert!(ready.contains(A, place(0, 1, 6)) && !ready.contains(A, place(0, 1, 2)));
        assert_eq!(drain(&mut ready), [9, 7, 1, 3, 4, 5, 6]);
        assert!(ready.is_empty());
    }

    #[test]
    fn a_lane_is_taken_whole_with_those_who_came_together() {
        let mut ready = Ready::default();
        ready.admit(A, [place(0, 1, 2), place(0, 1, 5)].into());
        ready.push(A, place(0, 1, 3));
        ready.park(A);
        ready.admit(A, [place(9, 1, 8)].into());
        assert_eq!(ready.first(), None, "it is parked, whoever comes");
        assert_eq!(ready.take_lane(A), [8, 2, 3, 5].map(JobId));
        assert!(ready.is_empty() && ready.faults().is_empty());
    }

    #[test]
    fn a_pinned_job_goes_before_an_earlier_one_of_the_same_priority() {
        let mut ready = Ready::default();
        ready.push(A, place(0, 1, 1));
        ready
            .push(LaneKey::Pinned(WorkerId(4), DefinitionNo(0)), Place::new(0, true, Timestamp(2), JobId(2)));
        assert_eq!(drain(&mut ready), [2, 1]);
    }

    /// Somebody who waits, as the queue of DESIGN.md section 1 orders them: priority, then pinned first, then due time, then id.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Waiting {
        lane: LaneKey,
        priority: i8,
        due: i64,
        job: u64,
    }

    impl Waiting {
        fn place(&self) -> Place {
            Place::new(self.priority, self.is_pinned(), Timestamp(self.due), JobId(self.job))
        }

        fn is_pinned(&self) -> bool {
            self.lane.pinned_to().is_some()
        }

        fn order(&self) -> (i16, u8, i64, u64) {
            (-i16::from(self.priority), if self.is_pinned() { 0 } else { 1 }, self.due, self.job)
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(Waiting),
        /// The one at this place of the list, counted around.
        Remove(usize),
        TakeFirst,
        ParkFirst,
        Unpark,
        TakePinned(WorkerId),
    }

    fn lane() -> impl Strategy<Value = LaneKey> {
        prop_oneof![
            (0..3_u32).prop_map(|number| LaneKey::Definition(DefinitionNo(number))),
            (0..2_u64, 0..2_u32)
                .prop_map(|(worker, number)| LaneKey::Pinned(WorkerId(worker), DefinitionNo(number))),
        ]
    }

    fn act() -> impl Strategy<Value = Act> {
        let waiting = (lane(), -2..3_i8, 0..4_i64, 0..60_u64);
        prop_oneof![
            6 => waiting.prop_map(|(lane, priority, due, job)| Act::Push(Waiting { lane, priority, due, job })),
            2 => any::<usize>().prop_map(Act::Remove),
            3 => Just(Act::TakeFirst),
            2 => Just(Act::ParkFirst),
            1 => Just(Act::Unpark),
            1 => (0..2_u64).prop_map(|worker| Act::TakePinned(WorkerId(worker))),
        ]
    }

    proptest! {
        /// Against a list that is searched from end to end.
        #[test]
        fn the_first_is_the_least_of_a_sorted_list(acts in proptest::collection::vec(act(), 1..80)) {
            let mut ready = Ready::default();
            let mut list: Vec<Waiting> = Vec::new();
            let mut parked: Vec<LaneKey> = Vec::new();
            for act in acts {
                let first = list.iter().filter(|it| !parked.contains(&it.lane)).min_by_key(|it| it.order()).copied();
                prop_assert_eq!(ready.first(), first.map(|it| (it.lane, JobId(it.job))));
                match act {
                    Act::Push(it) if list.iter().any(|other| other.job == it.job) => {}
                    Act::Push(it) => {
                        list.push(it);
                        ready.push(it.lane, it.place());
                    }
                    Act::Remove(at) if !list.is_empty() => {
                        let it = list.remove(at % list.len());
                        prop_assert!(ready.remove(it.lane, it.place()));
                        prop_assert!(!ready.remove(it.lane, it.place()));
                    }
                    Act::TakeFirst => if let Some(it) = first {
                        list.retain(|other| *other != it);
                        prop_assert!(ready.remove(it.lane, it.place()));
                    },
                    Act::ParkFirst => if let Some(it) = first {
                        parked.push(it.lane);
                        ready.park(it.lane);
                    },
                    Act::Unpark => {
                        parked.clear();
                        ready.unpark();
                    }
                    Act::TakePinned(only) => {
                        let is_taken = |it: &Waiting| it.lane.pinned_to() == Some(only);
                        let mut taken: Vec<Waiting> = list.iter().filter(|it| is_taken(it)).copied().collect();
                        taken.sort_by_key(|it| (it.lane, it.order()));
                        list.retain(|it| !is_taken(it));
                        prop_assert_eq!(ready.take_pinned(only), taken.iter().map(|it| JobId(it.job)).collect::<Vec<_>>());
                    }
                    Act::Remove(_) => {}
                }
                // A lane that has emptied is forgotten, and with it that nobody could take its first job.
                parked.retain(|lane| list.iter().any(|it| it.lane == *lane));
                prop_assert_eq!(ready.faults(), Vec::<&str>::new());
            }
            ready.unpark();
            list.sort_by_key(Waiting::order);
            prop_assert_eq!(drain(&mut ready), list.iter().map(|it| it.job).collect::<Vec<_>>());
        }
    }
}
