//! The static order of keys against aged priorities that are computed at an instant.

use core::cmp::Reverse;

use proptest::prelude::*;
use protocol::JobId;

use super::super::QueueKey;
use super::*;

const HOUR: i64 = 3_600_000;

fn hourly() -> PriorityAgeing {
    PriorityAgeing::every(Duration::from_secs(3_600)).unwrap()
}

fn key(ageing: PriorityAgeing, priority: i8, due: i64, job: u64) -> QueueKey {
    QueueKey::new(ageing, priority, false, Timestamp(due), JobId(job))
}

#[test]
fn a_job_overtakes_one_of_the_next_priority_that_became_due_a_period_later() {
    let low = key(hourly(), 0, 0, 1);
    assert!(key(hourly(), 1, HOUR - 1, 2) < low, "not a period older");
    assert!(low < key(hourly(), 1, HOUR, 2), "equal then, and its number is lower");
    assert!(low < key(hourly(), 100, 100 * HOUR + 1, 2), "also of the highest priority");
    assert!(key(hourly(), 100, 100 * HOUR - 1, 2) < low, "which waits for no younger one");
}

#[test]
fn a_pinned_job_goes_before_others_of_the_same_whole_step_only() {
    let pinned = QueueKey::new(hourly(), 0, true, Timestamp(HOUR + 1), JobId(9));
    assert!(pinned < key(hourly(), 0, HOUR, 1), "it became due in the same period");
    assert!(key(hourly(), 0, HOUR - 1, 1) < pinned, "it has a step more");
    assert!(pinned < key(hourly(), 1, 2 * HOUR, 1), "a step later, a priority higher");
}

#[test]
fn steps_are_whole_periods_of_waiting() {
    let at = |millis| Timestamp(5_000 + millis);
    assert_eq!(PriorityAgeing::OFF.steps(at(0), at(HOUR)), None);
    let steps = |waited| hourly().steps(at(0), at(waited));
    assert_eq!((steps(HOUR - 1), steps(HOUR), steps(3 * HOUR)), (Some(0), Some(1), Some(3)));
    assert_eq!(steps(-3 * HOUR), Some(0), "the clock was set back");
}

#[test]
fn a_period_has_bounds() {
    let is_possible = |period| PriorityAgeing::every(period).is_some();
    let (shortest, longest) = (*PriorityAgeing::PERIODS.start(), *PriorityAgeing::PERIODS.end());
    assert!(is_possible(shortest) && is_possible(longest));
    for wrong in [Duration::ZERO, shortest - Duration::from_millis(1), longest + Duration::from_millis(1)] {
        assert!(!is_possible(wrong), "{wrong:?}");
    }
}

#[test]
fn keys_at_the_ends_of_time_are_in_order() {
    let shortest = PriorityAgeing::every(Duration::from_secs(1)).unwrap();
    let dues = [
        i64::MIN,
        -REFERENCE_INSTANT,
        0,
        REFERENCE_INSTANT,
        2 * REFERENCE_INSTANT,
        3 * REFERENCE_INSTANT,
        i64::MAX,
    ];
    let keys = dues.map(|due| key(shortest, 0, due, 1));
    assert!(keys.is_sorted(), "{keys:?}");
    assert!(keys.windows(2).all(|pair| pair[0].priority() >= pair[1].priority()), "{keys:?}");
}

/// A key is in each queue and in each list of prefetched attempts, for millions of jobs.
#[test]
fn ageing_makes_no_key_larger() {
    assert_eq!(size_of::<QueueKey>(), 24);
}

#[derive(Clone, Copy, Debug)]
struct Job {
    priority: i8,
    pinned: bool,
    due: i64,
    number: u64,
}

impl Job {
    fn key(self, ageing: PriorityAgeing) -> QueueKey {
        QueueKey::new(ageing, self.priority, self.pinned, Timestamp(self.due), JobId(self.number))
    }

    /// The order at this instant: priority with the periods that have ended since it became due, pinned jobs first, the exact priority
    /// with parts of steps, number.
    fn order_at(self, now: i64, period: i64) -> (Reverse<i64>, bool, Reverse<i128>, u64) {
        let ended = now.div_euclid(period) - self.due.div_euclid(period);
        let exact = i128::from(self.priority) * i128::from(period) + i128::from(now - self.due);
        (Reverse(i64::from(self.priority) + ended), !self.pinned, Reverse(exact), self.number)
    }
}

fn jobs() -> impl Strategy<Value = (Job, Job)> {
    let job = || (-100..=100_i8, any::<bool>(), 0..3_000_000_i64, 0..9_u64);
    (job(), job(), 0..2_000_000_000_000_i64).prop_map(|(one, other, base)| {
        let job = |(priority, pinned, due, number)| Job { priority, pinned, due: base + due, number };
        (job(one), job(other))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_order_of_keys_is_that_of_aged_priorities_at_any_instant(
        (one, other) in jobs(),
        seconds in 1..400_u64,
        now in -10_000_000_000_000..10_000_000_000_000_i64,
    ) {
        let period = seconds as i64 * 1_000;
        let ageing = PriorityAgeing::every(Duration::from_secs(seconds)).unwrap();
        prop_assume!((one.number, one.due, one.priority) != (other.number, other.due, other.priority));
        let (key, other_key) = (one.key(ageing), other.key(ageing));
        prop_assert_eq!(
            (key.priority, key.goes_first, key.due, key.job).cmp(&(other_key.priority, other_key.goes_first, other_key.due, other_key.job)),
            one.order_at(now, period).cmp(&other.order_at(now, period))
        );
        // Without pinned jobs, parts of a step alone decide: whole steps only round them.
        let exact = |it: Job| (it.order_at(now, period).2, it.number);
        let unpinned = |it: Job| Job { pinned: false, ..it };
        if exact(one) != exact(other) {
            prop_assert_eq!(unpinned(one).key(ageing) < unpinned(other).key(ageing), exact(one) < exact(other));
        }
    }

    #[test]
    fn a_worker_sorts_as_the_server_does((one, other) in jobs(), seconds in prop::option::of(1..400_u64)) {
        let ageing = seconds.map_or(PriorityAgeing::OFF, |it| PriorityAgeing::every(Duration::from_secs(it)).unwrap());
        let key = |it: Job| {
            let key = Job { pinned: false, number: 1, ..it }.key(ageing);
            (key.priority, key.due)
        };
        let on_worker = |it: Job| {
            let (priority, due) = ageing.order_on_worker(it.priority, Timestamp(it.due));
            (Reverse(priority), due)
        };
        prop_assert_eq!(key(one).cmp(&key(other)), on_worker(one).cmp(&on_worker(other)));
        prop_assert!(on_worker(one).1 <= Timestamp(one.due), "a worker is told how long ago it was");
    }

    #[test]
    fn without_ageing_the_order_is_priority_pinned_due_time_and_number((one, other) in jobs()) {
        let plain = |it: Job| (Reverse(it.priority), !it.pinned, it.due, it.number);
        prop_assume!(plain(one) != plain(other));
        prop_assert_eq!(
            one.key(PriorityAgeing::OFF).cmp(&other.key(PriorityAgeing::OFF)),
            plain(one).cmp(&plain(other))
        );
    }
}
