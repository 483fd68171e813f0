//! Two kinds of time. [`Timestamp`] is shown and stored and may step back. [`Uptime`] is monotonic, measures
//! leases and timeouts, and never leaves its process. Nothing here reads a clock; the pure crates get [`Now`]
//! from their caller.

use core::ops::{Add, Sub};
use core::time::Duration;

/// An instant in UTC: milliseconds since 1970-01-01. It is stored and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// An instant of one machine's monotonic clock, counting suspend: nanoseconds since its boot. Never stored, never sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(pub u64);

/// Both clocks, read at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, for people and tables.
    pub utc: Timestamp,
    /// Monotonic clock, for leases and timeouts.
    pub up: Uptime,
}

impl Timestamp {
    /// Time from `earlier` to `self`; zero if the clock stepped back in between.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Uptime {
    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Add<Duration> for Uptime {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Uptime {
    type Output = Self;

    /// Saturates at the machine's boot.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stepped_back_measures_zero() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Uptime(5).since(Uptime(9)), Duration::ZERO);
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(Timestamp(i64::MAX) + Duration::MAX, Timestamp(i64::MAX));
        assert_eq!(Uptime(1) + Duration::MAX, Uptime(u64::MAX));
        assert_eq!(Uptime(1) - Duration::MAX, Uptime(0));
    }
}
