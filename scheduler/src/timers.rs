//! Timers: two ordered sets, one per clock. Adding, removing and firing are O(log n). A timer names its
//! subject, and the handler checks that it is still current.

use alloc::collections::BTreeSet;

use protocol::{Fence, JobId, Now, Timestamp, Uptime, WorkerId};

use crate::ids::{ExpectationNo, ScheduleNo};

/// Subject of a wall-clock timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Date {
    /// A scheduled job becomes due.
    Due(JobId),
    /// A job has waited for too long.
    Expiry(JobId),
    /// The deadline of a worker's drain.
    DrainEnd(WorkerId),
    /// The next slot of a schedule is due.
    Fire(ScheduleNo),
    /// A success is overdue.
    Stale(ExpectationNo),
    /// A worker that never reconnected may be forgotten soon.
    WorkerExpiry(WorkerId),
}

impl Date {
    /// Not before any other subject of the same time.
    const LAST: Self = Self::WorkerExpiry(WorkerId(u64::MAX));
}

/// Subject of a monotonic timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A worker's lease expires.
    LeaseEnd(WorkerId),
    /// An attempt of a silent worker is lost.
    Loss(JobId, Fence),
    /// An attempt exceeds its timeout by so much that its worker must have failed to stop it.
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
    dates: BTreeSet<(Timestamp, Date)>,
    alarms: BTreeSet<(Uptime, Alarm)>,
}

impl Timers {
    /// Sets a wall-clock timer.
    pub fn set_date(&mut self, at: Timestamp, date: Date) {
        self.dates.insert((at, date));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_date(&mut self, at: Timestamp, date: Date) {
        self.dates.remove(&(at, date));
    }

    /// Sets a monotonic timer.
    pub fn set_alarm(&mut self, at: Uptime, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_alarm(&mut self, at: Uptime, alarm: Alarm) {
        self.alarms.remove(&(at, alarm));
    }

    /// Takes the next wall-clock timer that is due.
    pub fn take_date(&mut self, now: Now) -> Option<Date> {
        let due = self.dates.first().is_some_and(|(at, _)| *at <= now.utc);
        due.then(|| self.dates.pop_first().map(|(_, date)| date)).flatten()
    }

    /// Takes the next wall-clock timer that is due and was set for a time after `after`.
    pub fn take_date_after(&mut self, after: Timestamp, now: Now) -> Option<Date> {
        let from = (core::ops::Bound::Excluded((after, Date::LAST)), core::ops::Bound::Unbounded);
        let first = self.dates.range(from).next().copied().filter(|(at, _)| *at <= now.utc)?;
        self.dates.remove(&first);
        Some(first.1)
    }

    /// Time of the first wall-clock timer that was set for a time after `after`.
    #[must_use]
    pub fn first_date_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = (core::ops::Bound::Excluded((after, Date::LAST)), core::ops::Bound::Unbounded);
        self.dates.range(from).next().map(|(at, _)| *at)
    }

    /// Takes the next monotonic timer that is due.
    pub fn take_alarm(&mut self, now: Now) -> Option<Alarm> {
        let due = self.alarms.first().is_some_and(|(at, _)| *at <= now.up);
        due.then(|| self.alarms.pop_first().map(|(_, alarm)| alarm)).flatten()
    }

    /// The monotonic timers that are due.
    pub fn due_alarms(&self, now: Now) -> impl Iterator<Item = Alarm> {
        self.alarms.iter().take_while(move |(at, _)| *at <= now.up).map(|(_, alarm)| *alarm)
    }

    /// Times of the next timers.
    #[must_use]
    pub fn wake_at(&self) -> WakeAt {
        WakeAt { utc: self.dates.first().map(|(at, _)| *at), up: self.alarms.first().map(|(at, _)| *at) }
    }

    /// The timer is set, for the audit.
    #[must_use]
    pub fn has_date(&self, at: Timestamp, date: Date) -> bool {
        self.dates.contains(&(at, date))
    }

    /// The timer is set, for the audit.
    #[must_use]
    pub fn has_alarm(&self, at: Uptime, alarm: Alarm) -> bool {
        self.alarms.contains(&(at, alarm))
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
        timers.set_date(Timestamp(20), Date::Due(JobId(2)));
        timers.set_date(Timestamp(10), Date::Due(JobId(1)));
        assert_eq!(timers.take_date(at(9)), None);
        assert_eq!(timers.take_date(at(25)), Some(Date::Due(JobId(1))));
        assert_eq!(timers.take_date(at(25)), Some(Date::Due(JobId(2))));
        assert_eq!(timers.take_date(at(25)), None);
    }

    #[test]
    fn a_cleared_timer_never_fires() {
        let mut timers = Timers::default();
        let alarm = Alarm::Overrun(JobId(1), Fence(7));
        timers.set_alarm(Uptime(5), alarm);
        timers.clear_alarm(Uptime(5), alarm);
        assert_eq!(timers.take_alarm(at(1)), None);
        assert_eq!(timers.wake_at(), WakeAt::default());
    }

    #[derive(Clone, Debug)]
    enum Act {
        SetDate(i64, u64),
        ClearDate(i64, u64),
        SetAlarm(u64, Alarm),
        ClearAlarm(u64, Alarm),
        Pass(i64),
    }

    fn alarm() -> impl Strategy<Value = Alarm> {
        (0..5_u8, 0..3_u64, 0..3_u64).prop_map(|(kind, id, fence)| match kind {
            0 => Alarm::LeaseEnd(WorkerId(id)),
            1 => Alarm::Loss(JobId(id), Fence(fence)),
            2 => Alarm::Overrun(JobId(id), Fence(fence)),
            3 => Alarm::ExclusionEnd(WorkerId(id)),
            _ => Alarm::Recall,
        })
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..100_i64, 0..4_u64).prop_map(|(at, job)| Act::SetDate(at, job)),
            (0..100_i64, 0..4_u64).prop_map(|(at, job)| Act::ClearDate(at, job)),
            (0..100_u64, alarm()).prop_map(|(at, alarm)| Act::SetAlarm(at, alarm)),
            (0..100_u64, alarm()).prop_map(|(at, alarm)| Act::ClearAlarm(at, alarm)),
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
            let mut dates: Vec<(Timestamp, Date)> = Vec::new();
            let mut alarms: Vec<(Uptime, Alarm)> = Vec::new();
            let mut now = Now { utc: Timestamp(0), up: Uptime(0) };
            for act in acts {
                match act {
                    Act::SetDate(at, job) => {
                        let it = (Timestamp(at), Date::Due(JobId(job)));
                        dates.retain(|other| *other != it);
                        dates.push(it);
                        timers.set_date(it.0, it.1);
                    }
                    Act::ClearDate(at, job) => {
                        let it = (Timestamp(at), Date::Due(JobId(job)));
                        dates.retain(|other| *other != it);
                        timers.clear_date(it.0, it.1);
                    }
                    Act::SetAlarm(at, alarm) => {
                        alarms.retain(|other| *other != (Uptime(at), alarm));
                        alarms.push((Uptime(at), alarm));
                        timers.set_alarm(Uptime(at), alarm);
                    }
                    Act::ClearAlarm(at, alarm) => {
                        alarms.retain(|other| *other != (Uptime(at), alarm));
                        timers.clear_alarm(Uptime(at), alarm);
                    }
                    Act::Pass(time) => {
                        // The two clocks may differ.
                        now = Now { utc: Timestamp(now.utc.0 + time), up: Uptime(now.up.0 + time as u64 / 2) };
                        loop {
                            let (date, alarm) = (take_due(&mut dates, now.utc), take_due(&mut alarms, now.up));
                            prop_assert_eq!((timers.take_date(now), timers.take_alarm(now)), (date, alarm));
                            if (date, alarm) == (None, None) {
                                break;
                            }
                        }
                    }
                }
                let next = WakeAt {
                    utc: dates.iter().map(|(at, _)| *at).min(),
                    up: alarms.iter().map(|(at, _)| *at).min(),
                };
                prop_assert_eq!(timers.wake_at(), next);
            }
        }
    }
}
