//! Timers: two ordered sets, one per clock. Adding, removing and firing are O(log n). A timer names its
//! subject, and the handler checks that it is still current.

use alloc::collections::BTreeSet;

use protocol::{Fence, JobId, Now, Timestamp, Uptime, WorkerId};

use crate::ids::{ExpectationNo, ScheduleNo};

/// Subject of a wall-clock timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WallTimer {
    /// A scheduled job becomes due.
    Due(JobId),
    /// A job has waited for too long.
    Expiry(JobId),
    /// The cordon of a worker ends by itself.
    CordonEnd(WorkerId),
    /// The deadline of a worker's drain.
    DrainEnd(WorkerId),
    /// The next slot of a schedule is due.
    Fire(ScheduleNo),
    /// A success is overdue.
    Stale(ExpectationNo),
    /// A worker that never reconnected may be forgotten soon.
    WorkerExpiry(WorkerId),
}

impl WallTimer {
    /// Not before any other subject of the same time.
    const LAST: Self = Self::WorkerExpiry(WorkerId(u64::MAX));
}

/// Subject of a monotonic timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UptimeTimer {
    /// A worker's lease expires.
    LeaseEnd(WorkerId),
    /// An attempt of a silent worker is lost.
    Loss(JobId, Fence),
    /// The time by which an attempt must exceed its timeout until its worker must have failed to stop it.
    Overrun(JobId, Fence),
    /// An attempt runs longer than expected.
    Slow(JobId, Fence),
    /// A worker has not reported anything about an attempt that was sent to it.
    AwaitedReport(JobId, Fence),
    /// An exclusion of a worker ends.
    ExclusionEnd(WorkerId),
    /// No two clones of a worker have been heard for a lease.
    ClonesGone(WorkerId),
    /// The wall clock has said for hours that a worker was away for too long.
    WorkerExpiry(WorkerId),
    /// Prefetched attempts are old enough to be recalled.
    Recall,
    /// The next search for a worker to set aside is due.
    SetAside,
    /// A parent does not wait any longer for workers to reconnect.
    MembersDue,
}

/// Latest time for the next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeAt {
    /// By the wall clock.
    pub utc: Option<Timestamp>,
    /// By the monotonic clock.
    pub up: Option<Uptime>,
}

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    wall: BTreeSet<(Timestamp, WallTimer)>,
    uptime: BTreeSet<(Uptime, UptimeTimer)>,
}

impl Timers {
    /// Sets a wall-clock timer.
    pub fn set_wall(&mut self, at: Timestamp, timer: WallTimer) {
        self.wall.insert((at, timer));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_wall(&mut self, at: Timestamp, timer: WallTimer) {
        self.wall.remove(&(at, timer));
    }

    /// Sets a monotonic timer.
    pub fn set_uptime(&mut self, at: Uptime, timer: UptimeTimer) {
        self.uptime.insert((at, timer));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_uptime(&mut self, at: Uptime, timer: UptimeTimer) {
        self.uptime.remove(&(at, timer));
    }

    /// Takes the next wall-clock timer that is due.
    pub fn take_wall(&mut self, now: Now) -> Option<WallTimer> {
        let due = self.wall.first().is_some_and(|(at, _)| *at <= now.utc);
        due.then(|| self.wall.pop_first().map(|(_, timer)| timer)).flatten()
    }

    /// Takes the next wall-clock timer that is due and was set for a time after `after`.
    pub fn take_wall_after(&mut self, after: Timestamp, now: Now) -> Option<WallTimer> {
        let from = (core::ops::Bound::Excluded((after, WallTimer::LAST)), core::ops::Bound::Unbounded);
        let first = self.wall.range(from).next().copied().filter(|(at, _)| *at <= now.utc)?;
        self.wall.remove(&first);
        Some(first.1)
    }

    /// Time of the first wall-clock timer that was set for a time after `after`.
    #[must_use]
    pub fn first_wall_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = (core::ops::Bound::Excluded((after, WallTimer::LAST)), core::ops::Bound::Unbounded);
        self.wall.range(from).next().map(|(at, _)| *at)
    }

    /// Takes the next monotonic timer that is due.
    pub fn take_uptime(&mut self, now: Now) -> Option<UptimeTimer> {
        let due = self.uptime.first().is_some_and(|(at, _)| *at <= now.up);
        due.then(|| self.uptime.pop_first().map(|(_, timer)| timer)).flatten()
    }

    /// The monotonic timers that are due.
    pub fn due_uptime(&self, now: Now) -> impl Iterator<Item = UptimeTimer> {
        self.uptime.iter().take_while(move |(at, _)| *at <= now.up).map(|(_, timer)| *timer)
    }

    /// Times of the next timers.
    #[must_use]
    pub fn wake_at(&self) -> WakeAt {
        WakeAt { utc: self.wall.first().map(|(at, _)| *at), up: self.uptime.first().map(|(at, _)| *at) }
    }

    /// The timer is set, for the audit.
    #[must_use]
    pub fn has_wall(&self, at: Timestamp, timer: WallTimer) -> bool {
        self.wall.contains(&(at, timer))
    }

    /// The timer is set, for the audit.
    #[must_use]
    pub fn has_uptime(&self, at: Uptime, timer: UptimeTimer) -> bool {
        self.uptime.contains(&(at, timer))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Now {
        Now { utc: Timestamp(millis), up: Uptime(millis as u64 * 1_000_000) }
    }

    #[test]
    fn timers_fire_in_order_and_not_before_their_time() {
        let mut timers = Timers::default();
        timers.set_wall(Timestamp(20), WallTimer::Due(JobId(2)));
        timers.set_wall(Timestamp(10), WallTimer::Due(JobId(1)));
        assert_eq!(timers.take_wall(at(9)), None);
        assert_eq!(timers.take_wall(at(25)), Some(WallTimer::Due(JobId(1))));
        assert_eq!(timers.take_wall(at(25)), Some(WallTimer::Due(JobId(2))));
        assert_eq!(timers.take_wall(at(25)), None);
    }

    #[test]
    fn a_cleared_timer_never_fires() {
        let mut timers = Timers::default();
        let timer = UptimeTimer::Overrun(JobId(1), Fence(7));
        timers.set_uptime(Uptime(5), timer);
        timers.clear_uptime(Uptime(5), timer);
        assert_eq!(timers.take_uptime(at(1)), None);
        assert_eq!(timers.wake_at(), WakeAt::default());
    }

    #[derive(Clone, Debug)]
    enum Act {
        SetDate(i64, u64),
        ClearDate(i64, u64),
        SetAlarm(u64, UptimeTimer),
        ClearAlarm(u64, UptimeTimer),
        Pass(i64),
    }

    fn timer() -> impl Strategy<Value = UptimeTimer> {
        (0..5_u8, 0..3_u64, 0..3_u64).prop_map(|(kind, id, fence)| match kind {
            0 => UptimeTimer::LeaseEnd(WorkerId(id)),
            1 => UptimeTimer::Loss(JobId(id), Fence(fence)),
            2 => UptimeTimer::Overrun(JobId(id), Fence(fence)),
            3 => UptimeTimer::ExclusionEnd(WorkerId(id)),
            _ => UptimeTimer::Recall,
        })
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..100_i64, 0..4_u64).prop_map(|(at, job)| Act::SetDate(at, job)),
            (0..100_i64, 0..4_u64).prop_map(|(at, job)| Act::ClearDate(at, job)),
            (0..100_u64, timer()).prop_map(|(at, timer)| Act::SetAlarm(at, timer)),
            (0..100_u64, timer()).prop_map(|(at, timer)| Act::ClearAlarm(at, timer)),
            (0..20_i64).prop_map(Act::Pass),
        ]
    }

    /// The earliest timer that is due, by a search through all.
    fn take_due<T: Ord + Copy, A: Ord + Copy>(list: &mut Vec<(A, T)>, now: A) -> Option<T> {
        let next = list.iter().filter(|(at, _)| *at <= now).min().copied()?;
        list.retain(|it| *it != next);
        Some(next.1)
    }

    proptest! {
        #[test]
        fn timers_match_a_linear_scan(acts in proptest::collection::vec(act(), 1..60)) {
            let mut timers = Timers::default();
            let mut wall: Vec<(Timestamp, WallTimer)> = Vec::new();
            let mut uptime: Vec<(Uptime, UptimeTimer)> = Vec::new();
            let mut now = Now { utc: Timestamp(0), up: Uptime(0) };
            for act in acts {
                match act {
                    Act::SetDate(at, job) => {
                        let it = (Timestamp(at), WallTimer::Due(JobId(job)));
                        wall.retain(|other| *other != it);
                        wall.push(it);
                        timers.set_wall(it.0, it.1);
                    }
                    Act::ClearDate(at, job) => {
                        let it = (Timestamp(at), WallTimer::Due(JobId(job)));
                        wall.retain(|other| *other != it);
                        timers.clear_wall(it.0, it.1);
                    }
                    Act::SetAlarm(at, timer) => {
                        uptime.retain(|other| *other != (Uptime(at), timer));
                        uptime.push((Uptime(at), timer));
                        timers.set_uptime(Uptime(at), timer);
                    }
                    Act::ClearAlarm(at, timer) => {
                        uptime.retain(|other| *other != (Uptime(at), timer));
                        timers.clear_uptime(Uptime(at), timer);
                    }
                    Act::Pass(time) => {
                        // The two clocks may differ.
                        now = Now { utc: Timestamp(now.utc.0 + time), up: Uptime(now.up.0 + time as u64 / 2) };
                        loop {
                            let due = (take_due(&mut wall, now.utc), take_due(&mut uptime, now.up));
                            prop_assert_eq!((timers.take_wall(now), timers.take_uptime(now)), due);
                            if due == (None, None) {
                                break;
                            }
                        }
                    }
                }
                let next = WakeAt {
                    utc: wall.iter().map(|(at, _)| *at).min(),
                    up: uptime.iter().map(|(at, _)| *at).min(),
                };
                prop_assert_eq!(timers.wake_at(), next);
            }
        }
    }
}
