//! True time, which nobody in the world can read, and the clocks of machines, which run a little fast or slow and jump.

use std::ops::Add;
use std::time::Duration;

use protocol::{Now, Timestamp, Uptime};

/// An instant of true time: nanoseconds since the beginning of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_nanos() as u64))
    }
}

/// The clocks of one machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The monotonic time at the beginning of the world.
    booted: u64,
    /// By how much it runs fast, in millionths.
    drift_ppm: i64,
    /// By how much the clock on the wall is ahead, in milliseconds.
    ahead_ms: i64,
}

impl Clock {
    pub(crate) const fn new(booted: Duration, drift_ppm: i64) -> Self {
        Self { booted: booted.as_nanos() as u64, drift_ppm, ahead_ms: 0 }
    }

    pub(crate) fn now(&self, at: Moment) -> Now {
        Now { utc: self.utc(at), up: self.up(at) }
    }

    pub(crate) fn up(&self, at: Moment) -> Uptime {
        Uptime(self.booted + self.local(at.0))
    }

    pub(crate) fn utc(&self, at: Moment) -> Timestamp {
        Timestamp(BEGINNING_MS + self.ahead_ms + (self.local(at.0) / 1_000_000) as i64)
    }

    /// The first moment at which the monotonic clock shows this.
    pub(crate) fn when_up(&self, up: Uptime) -> Moment {
        self.when(up.0.saturating_sub(self.booted))
    }

    /// The first moment at which the clock on the wall shows this, unless it jumps.
    pub(crate) fn when_utc(&self, utc: Timestamp) -> Moment {
        let millis = utc.0.saturating_sub(BEGINNING_MS + self.ahead_ms).max(0) as u64;
        self.when(millis.saturating_mul(1_000_000))
    }

    /// The true length of a duration that this machine measures.
    pub(crate) fn true_length(&self, local: Duration) -> Duration {
        Duration::from_nanos(self.when(local.as_nanos() as u64).0)
    }

    /// Sets the clock on the wall forward, or back.
    pub(crate) const fn step(&mut self, millis: i64) {
        self.ahead_ms += millis;
    }

    fn local(&self, true_nanos: u64) -> u64 {
        let drifted = true_nanos as i128 * (1_000_000 + self.drift_ppm) as i128;
        (drifted / 1_000_000) as u64
    }

    fn when(&self, local: u64) -> Moment {
        let divisor = (1_000_000 + self.drift_ppm) as u128;
        let nanos = (u128::from(local) * 1_000_000).div_ceil(divisor);
        Moment(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The wall-clock time of a machine without faults at the beginning: somewhere in 2026.
const BEGINNING_MS: i64 = 1_790_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_set_by_a_drifting_clock_is_due_when_it_rings_and_not_before() {
        for drift in [-50_000, -7, 0, 3, 50_000] {
            let clock = Clock::new(Duration::from_secs(77), drift);
            for nanos in [1, 999, 30_000_000_001, 86_400_000_000_007] {
                let up = Uptime(clock.up(Moment(0)).0 + nanos);
                let at = clock.when_up(up);
                assert!(clock.up(at) >= up);
                assert!(at.0 == 0 || clock.up(Moment(at.0 - 1)) < up);
            }
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_leaves_the_monotonic_one_alone() {
        let mut clock = Clock::new(Duration::from_secs(5), 0);
        let before = clock.now(Moment(1_000_000_000));
        clock.step(-3_600_000);
        let after = clock.now(Moment(1_000_000_000));
        assert_eq!((before.up, before.utc.0 - 3_600_000), (after.up, after.utc.0));
        assert!(clock.utc(clock.when_utc(before.utc)) >= before.utc);
    }
}
