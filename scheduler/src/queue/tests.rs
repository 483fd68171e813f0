//! The ready queue against small examples, and against a list that is searched from end to end.

use core::time::Duration;

use proptest::prelude::*;
use protocol::Timestamp;

use super::*;
use crate::limits::keys::KeySetNo;

const A: LaneKey = LaneKey::Definition(DefinitionNo(0), KeySetNo::UNLIMITED);
const B: LaneKey = LaneKey::Definition(DefinitionNo(1), KeySetNo::UNLIMITED);

fn key(priority: i8, due: i64, job: u64) -> QueueKey {
    QueueKey::new(PriorityAgeing::OFF, priority, false, Timestamp(due), JobId(job))
}

const ANY: ParkedFor = ParkedFor::Need(NeedId(0));

/// Lanes of definition 0 need another runtime than the others.
fn parked_for(lane: LaneKey) -> ParkedFor {
    match lane {
        LaneKey::Pinned(only, ..) | LaneKey::PausedPinned(only, ..) => ParkedFor::Worker(only),
        LaneKey::Definition(DefinitionNo(0), _) => ParkedFor::Need(NeedId(1)),
        LaneKey::Definition(..) | LaneKey::Listed(..) | LaneKey::Distinct(..) | LaneKey::Paused(..) => ANY,
    }
}

fn unpark_all(ready: &mut ReadyQueue) {
    let parked_for: BTreeSet<ParkedFor> =
        ready.limited_waiting_for_room.keys().chain(ready.waiting_for_room.keys()).copied().collect();
    for parked_for in parked_for {
        unpark(ready, parked_for);
    }
}

/// Wakes the lanes that wait for these workers, which have room for all of them.
fn unpark(ready: &mut ReadyQueue, parked_for: ParkedFor) {
    ready.unpark(parked_for);
    while !ready.last_woken.is_empty() {
        ready.wake_next_for_room(|_, _| true);
    }
}

#[test]
fn a_worker_wakes_only_the_lanes_that_it_may_run() {
    let mut ready = ReadyQueue::default();
    ready.push(A, key(9, 0, 1));
    ready.push(B, key(0, 0, 2));
    ready.park(A, parked_for(A));
    ready.park(B, parked_for(B));
    unpark(&mut ready, ParkedFor::Worker(WorkerId(1)));
    assert_eq!(ready.first(), None);
    unpark(&mut ready, ANY);
    assert_eq!(ready.first(), Some((B, JobId(2))));
    assert!(ready.faults().is_empty());
}

#[test]
fn a_lane_knows_its_last_start_while_other_jobs_of_it_wait() {
    let mut ready = ReadyQueue::default();
    let limited = LaneKey::Definition(DefinitionNo(0), KeySetNo::UNKEYED);
    for (lane, job) in [(limited, 1), (limited, 2), (B, 3), (B, 4)] {
        ready.push(lane, key(0, 0, job));
    }
    ready.start(limited, key(0, 0, 1), Timestamp(7));
    ready.start(B, key(0, 0, 3), Timestamp(7));
    assert_eq!((ready.last_start(limited), ready.last_start(B)), (Some(Timestamp(7)), None));
    for (from, to) in [(limited, limited.paused()), (limited.paused(), limited)] {
        ready.move_jobs(from, to, [(key(0, 0, 2), key(0, 0, 2))]);
    }
    assert_eq!(ready.last_start(limited), Some(Timestamp(7)), "a pause of its jobs changes nothing");
    ready.start(limited, key(0, 0, 2), Timestamp(8));
    ready.push(limited, key(0, 9, 5));
    assert_eq!(ready.last_start(limited), None);
}

#[test]
fn lanes_that_wait_for_the_same_workers_are_woken_one_by_one_in_order_while_there_is_room() {
    let lane = |number| LaneKey::Definition(DefinitionNo(number), KeySetNo::UNLIMITED);
    let mut ready = ReadyQueue::default();
    for number in 1..=4 {
        ready.push(lane(number), key(0, 10 - i64::from(number), u64::from(number)));
        ready.park(lane(number), ANY);
    }
    ready.unpark(ANY);
    assert_eq!(ready.first(), None, "nothing is woken before somebody asks for the next one");
    ready.wake_next_for_room(|_, _| true);
    assert_eq!(ready.first(), Some((lane(4), JobId(4))));
    // No worker takes it after all, such as for an exclusion: the next one has its turn, and this one only once.
    ready.park(lane(4), ANY);
    ready.wake_next_for_room(|_, _| true);
    assert_eq!(ready.first(), Some((lane(3), JobId(3))));
    // A lane that was passed is looked at again when it has an earlier job.
    ready.push(lane(4), key(0, 0, 9));
    assert_eq!(ready.first(), Some((lane(4), JobId(9))));
    assert!(ready.faults().is_empty());
    // Room is gone: the others stay parked until it comes back.
    ready.wake_next_for_room(|_, _| false);
    ready.wake_next_for_room(|_, _| true);
    assert_eq!(ready.waiting_for_room.get(&ANY).map(BTreeSet::len), Some(2));
    unpark(&mut ready, ANY);
    assert_eq!(drain(&mut ready), [9, 4, 3, 2, 1]);
}

#[test]
fn the_highest_priority_counts_parked_lanes() {
    let mut ready = ReadyQueue::default();
    ready.push(A, key(9, 0, 1));
    ready.push(B, key(3, 0, 2));
    ready.park(A, ANY);
    let priority = |priority| Some(key(priority, 0, 1).priority());
    assert_eq!(ready.highest_priority(), priority(9));
    ready.remove(A, key(9, 0, 1));
    assert_eq!(ready.highest_priority(), priority(3));
    ready.park(B, ANY);
    assert_eq!(ready.highest_priority(), priority(3));
    ready.remove(B, key(3, 0, 2));
    assert_eq!(ready.highest_priority(), None);
}

#[test]
fn jobs_before_a_key_are_counted_in_runs_and_beside_them_and_no_further_than_asked() {
    let mut ready = ReadyQueue::default();
    let at = |job| key(0, 0, job);
    ready.push_run(A, (1..=9_000).map(at).collect());
    (9_001..=11_000).for_each(|job| ready.push(A, at(job)));
    ready.push_run(A, (11_001..=20_000).map(at).collect());
    let counted = |job, max| ready.count_before(A, at(job), max);
    assert_eq!([1, 2, 9_000, 9_001, 12_000].map(|job| counted(job, 20_000)), [0, 1, 8_999, 9_000, 11_999]);
    assert_eq!([1, 10_000, 10_001, 10_002].map(|job| counted(job, 10_000)), [0, 9_999, 10_000, 10_000]);
    assert_eq!(counted(20_000, 10_000), 10_000);
}

fn drain(ready: &mut ReadyQueue) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some((lane, job)) = ready.first() {
        let key = ready.head(lane).unwrap();
        assert_eq!(key.job, job);
        ready.remove(lane, key);
        order.push(key.job.0);
        assert!(ready.faults().is_empty());
    }
    order
}

#[test]
fn priority_goes_before_due_time_and_due_time_before_id() {
    let mut ready = ReadyQueue::default();
    for (lane, key) in [(A, key(0, 5, 3)), (B, key(0, 5, 2)), (A, key(9, 8, 9)), (B, key(0, 1, 7))] {
        ready.push(lane, key);
    }
    assert_eq!(drain(&mut ready), [9, 7, 2, 3]);
}

#[test]
fn a_parked_lane_does_not_hold_up_the_others() {
    let mut ready = ReadyQueue::default();
    ready.push(A, key(9, 0, 1));
    ready.push(B, key(0, 0, 2));
    ready.park(A, ANY);
    assert_eq!(ready.first(), Some((B, JobId(2))));
    ready.push(A, key(8, 0, 3));
    assert_eq!(ready.first(), Some((B, JobId(2))));
    unpark_all(&mut ready);
    assert_eq!(drain(&mut ready), [1, 3, 2]);
}

#[test]
fn jobs_of_a_run_are_in_order_among_the_others() {
    let run = |jobs: &[(i8, u64)]| jobs.iter().map(|(priority, job)| key(*priority, 1, *job)).collect();
    let mut ready = ReadyQueue::default();
    ready.push(A, key(0, 1, 4));
    ready.push_run(A, run(&[(0, 1), (0, 2), (0, 3), (5, 9)]));
    ready.push_run(A, run(&[(0, 5), (0, 6)]));
    ready.push(B, key(0, 0, 7));
    assert_eq!(ready.lanes().map(|(_, waiting)| waiting).sum::<usize>(), 8);
    assert!(ready.remove(A, key(0, 1, 2)), "out of the middle");
    assert!(!ready.remove(A, key(0, 1, 2)));
    assert!(ready.contains(A, key(0, 1, 6)) && !ready.contains(A, key(0, 1, 2)));
    assert_eq!(drain(&mut ready), [9, 7, 1, 3, 4, 5, 6]);
    assert!(ready.is_empty());
}

#[test]
fn taking_a_lane_returns_single_jobs_and_runs_in_order() {
    let mut ready = ReadyQueue::default();
    ready.push_run(A, [key(0, 1, 2), key(0, 1, 5)].into());
    ready.push(A, key(0, 1, 3));
    ready.park(A, ANY);
    ready.push_run(A, [key(0, 1, 8)].into());
    assert_eq!(ready.first(), None, "a parked lane stays parked when later jobs arrive");
    ready.push_run(A, [key(9, 1, 9)].into());
    assert_eq!(ready.first(), Some((A, JobId(9))), "an earlier job may have a worker that is set aside");
    assert_eq!(ready.take_lane(A), [9, 2, 3, 5, 8].map(JobId));
    assert!(ready.is_empty() && ready.faults().is_empty());
}

#[test]
fn a_pinned_job_goes_before_an_earlier_one_of_the_same_priority() {
    let mut ready = ReadyQueue::default();
    ready.push(A, key(0, 1, 1));
    ready.push(
        LaneKey::Pinned(WorkerId(4), DefinitionNo(0), KeySetNo::UNLIMITED),
        QueueKey::new(PriorityAgeing::OFF, 0, true, Timestamp(2), JobId(2)),
    );
    assert_eq!(drain(&mut ready), [2, 1]);
}

#[test]
fn moved_jobs_are_paused_and_come_back_to_their_places() {
    let mut ready = ReadyQueue::default();
    ready.push_run(A, [1, 2, 3].map(|job| key(0, 1, job)).into());
    ready.push(A, key(0, 1, 4));
    let both = |jobs: &[u64]| jobs.iter().map(|job| (key(0, 1, *job), key(0, 1, *job))).collect::<Vec<_>>();
    // The last one does not wait.
    ready.move_jobs(A, A.paused(), both(&[1, 3, 9]));
    assert!(ready.faults().is_empty(), "{:?}", ready.faults());
    assert_eq!(ready.first().map(|(_, job)| job), Some(JobId(2)));
    let counts: Vec<_> = ready.counts().map(|(.., counts)| (counts.jobs, counts.paused)).collect();
    assert_eq!(counts, [(4, 2)]);
    ready.unpark_all();
    ready.pause(BTreeSet::from([DefinitionNo(0)]));
    ready.pause(BTreeSet::new());
    assert_eq!(ready.first().map(|(lane, _)| lane), Some(A), "no end of another pause lets them go");
    assert!(ready.faults().is_empty(), "{:?}", ready.faults());
    ready.move_jobs(A.paused(), A, both(&[1, 3]));
    assert_eq!(drain(&mut ready), [1, 2, 3, 4]);
    let pinned = LaneKey::Pinned(WorkerId(4), DefinitionNo(0), KeySetNo::UNLIMITED);
    ready.push(pinned, key(0, 1, 5));
    ready.move_jobs(pinned, pinned.paused(), both(&[5]));
    assert_eq!(ready.take_pinned(WorkerId(3)), []);
    assert_eq!(ready.take_pinned(WorkerId(4)), [JobId(5)]);
}

/// A waiting job, ordered as docs/design/scheduling.md, Q4 says: priority, pinned first, due time, id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Waiting {
    lane: LaneKey,
    priority: i8,
    due: i64,
    job: u64,
}

impl Waiting {
    fn queue_key(&self, seconds: u64) -> QueueKey {
        // A period of zero means no ageing.
        let ageing = PriorityAgeing::every(Duration::from_secs(seconds)).unwrap_or(PriorityAgeing::OFF);
        QueueKey::new(ageing, self.priority, self.is_pinned(), Timestamp(self.due), JobId(self.job))
    }

    fn is_pinned(&self) -> bool {
        self.lane.pinned_to().is_some()
    }

    /// With ageing, a job has lost a step for each period before it became due, and due times are virtual.
    fn order(&self, seconds: u64) -> (i64, u8, i64, u64) {
        let (period, priority) = (seconds as i64 * 1_000, i64::from(self.priority));
        let periods = if period == 0 { 0 } else { self.due.div_euclid(period) };
        let pinned = if self.is_pinned() { 0 } else { 1 };
        (periods - priority, pinned, self.due - priority * period, self.job)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Push(Waiting),
    /// Removes the job at this index of the list, modulo its length.
    Remove(usize),
    TakeFirst,
    ParkFirst,
    Unpark,
    TakePinned(WorkerId),
}

fn lane() -> impl Strategy<Value = LaneKey> {
    prop_oneof![
        (0..3_u32).prop_map(|number| LaneKey::Definition(DefinitionNo(number), KeySetNo::UNLIMITED)),
        (0..2_u64, 0..2_u32).prop_map(|(worker, number)| LaneKey::Pinned(
            WorkerId(worker),
            DefinitionNo(number),
            KeySetNo::UNKEYED
        )),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let waiting = (lane(), -2..3_i8, (0..4_i64).prop_map(|due| 1_000_000_000 + due * 700), 0..60_u64);
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
    /// Compares the queue with a list that is searched from end to end.
    #[test]
    fn the_first_is_the_least_of_a_sorted_list(
        acts in proptest::collection::vec(act(), 1..80),
        seconds in 0..3_u64,
    ) {
        let mut ready = ReadyQueue::default();
        let mut list: Vec<Waiting> = Vec::new();
        let mut parked: Vec<LaneKey> = Vec::new();
        for act in acts {
            let first = list.iter().filter(|it| !parked.contains(&it.lane)).min_by_key(|it| it.order(seconds)).copied();
            prop_assert_eq!(ready.first(), first.map(|it| (it.lane, JobId(it.job))));
            match act {
                Act::Push(it) if list.iter().any(|other| other.job == it.job) => {}
                Act::Push(it) => {
                    let mut others = list.iter().filter(|other| other.lane == it.lane);
                    // A lane with a new first job is looked at again.
                    if others.all(|other| it.order(seconds) < other.order(seconds)) {
                        parked.retain(|lane| *lane != it.lane);
                    }
                    list.push(it);
                    ready.push(it.lane, it.queue_key(seconds));
                }
                Act::Remove(at) if !list.is_empty() => {
                    let it = list.remove(at % list.len());
                    prop_assert!(ready.remove(it.lane, it.queue_key(seconds)));
                    prop_assert!(!ready.remove(it.lane, it.queue_key(seconds)));
                }
                Act::TakeFirst => if let Some(it) = first {
                    list.retain(|other| *other != it);
                    prop_assert!(ready.remove(it.lane, it.queue_key(seconds)));
                },
                Act::ParkFirst => if let Some(it) = first {
                    parked.push(it.lane);
                    ready.park(it.lane, parked_for(it.lane));
                },
                Act::Unpark => {
                    parked.clear();
                    unpark_all(&mut ready);
                }
                Act::TakePinned(only) => {
                    let is_taken = |it: &Waiting| it.lane.pinned_to() == Some(only);
                    let mut taken: Vec<Waiting> = list.iter().filter(|it| is_taken(it)).copied().collect();
                    taken.sort_by_key(|it| (it.lane, it.order(seconds)));
                    list.retain(|it| !is_taken(it));
                    prop_assert_eq!(ready.take_pinned(only), taken.iter().map(|it| JobId(it.job)).collect::<Vec<_>>());
                }
                Act::Remove(_) => {}
            }
            // An empty lane is removed, and it is not parked any more.
            parked.retain(|lane| list.iter().any(|it| it.lane == *lane));
            prop_assert_eq!(ready.faults(), Vec::<&str>::new());
        }
        unpark_all(&mut ready);
        list.sort_by_key(|it| it.order(seconds));
        prop_assert_eq!(drain(&mut ready), list.iter().map(|it| it.job).collect::<Vec<_>>());
    }
}
