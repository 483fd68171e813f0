//! What is to happen later: two ordered sets, one by each kind of time. Adding, removing and firing are O(log n); the next one is
//! known at once. A timer names what it is for, and whoever handles it checks that this is still current.

use alloc::collections::BTreeSet;

use protocol::{Fence, JobId, Now, Timestamp, Uptime, WorkerId};

use crate::step::WakeAt;

/// What a timer on the wall clock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Date {
    /// A scheduled job becomes due.
    Due(JobId),
}

/// What a timer on the monotonic clock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A worker's lease runs out.
    LeaseEnd(WorkerId),
    /// An attempt of a silent worker is given up.
    Loss(JobId, Fence),
    /// An attempt has run for so long that its worker must have failed to stop it.
    Overrun(JobId, Fence),
    /// A worker may be offered again what it could not take.
    Offer(WorkerId),
    /// Attempts in backlogs have sat for long enough to be recalled.
    Recall,
}

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    dates: BTreeSet<(Timestamp, Date)>,
    alarms: BTreeSet<(Uptime, Alarm)>,
}

impl Timers {
    /// Sets a timer on the wall clock.
    pub fn set_date(&mut self, at: Timestamp, date: Date) {
        self.dates.insert((at, date));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_date(&mut self, at: Timestamp, date: Date) {
        self.dates.remove(&(at, date));
    }

    /// Sets a timer on the monotonic clock.
    pub fn set_alarm(&mut self, at: Uptime, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    /// Removes it; harmless if it has fired.
    pub fn clear_alarm(&mut self, at: Uptime, alarm: Alarm) {
        self.alarms.remove(&(at, alarm));
    }

    /// Takes the next timer on the wall clock that is due.
    pub fn take_date(&mut self, now: Now) -> Option<Date> {
        let due = self.dates.first().is_some_and(|(at, _)| *at <= now.utc);
        due.then(|| self.dates.pop_first().map(|(_, date)| date)).flatten()
    }

    /// Takes the next timer on the monotonic clock that is due.
    pub fn take_alarm(&mut self, now: Now) -> Option<Alarm> {
        let due = self.alarms.first().is_some_and(|(at, _)| *at <= now.up);
        due.then(|| self.alarms.pop_first().map(|(_, alarm)| alarm)).flatten()
    }

    /// When the next one of each kind is due.
    #[must_use]
    pub fn wake_at(&self) -> WakeAt {
        WakeAt { utc: self.dates.first().map(|(at, _)| *at), up: self.alarms.first().map(|(at, _)| *at) }
    }

    /// Whether this timer is set: for the audit.
    #[must_use]
    pub fn has_date(&self, at: Timestamp, date: Date) -> bool {
        self.dates.contains(&(at, date))
    }

    /// Whether this timer is set: for the audit.
    #[must_use]
    pub fn has_alarm(&self, at: Uptime, alarm: Alarm) -> bool {
        self.alarms.contains(&(at, alarm))
    }
}

#[cfg(test)]
mod tests {
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
}
