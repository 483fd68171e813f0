//! The generic cell rate algorithm (GCRA) in whole nanoseconds: one instant for each limit instead of a bucket of tokens.
//!
//! The instant is when the limit will have recovered from all starts so far. A start moves it by one interval. A start is allowed while the
//! instant is less than the burst ahead of now, so no time of length `t` sees more than `burst + t / interval` starts.

use core::time::Duration;

use protocol::{Now, Timestamp, Uptime};

use crate::limits::rules::RateLimit;

/// A rate as interval and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds between two starts; at least 1.
    pub interval: u64,
    /// Starts that may follow each other at once; at least 1.
    pub burst: u32,
}

impl Rate {
    /// The rate of a rule. The interval is rounded up, so that a rate is never exceeded.
    #[must_use]
    pub fn of(rule: &RateLimit) -> Self {
        let per = u64::try_from(rule.per.as_nanos()).unwrap_or(u64::MAX);
        Self { interval: per.div_ceil(u64::from(rule.limit.max(1))).max(1), burst: rule.burst.max(1) }
    }

    /// How far the instant of recovery may be ahead of now after a start.
    const fn window(self) -> u64 {
        self.interval.saturating_mul(self.burst as u64)
    }

    /// When the next start is allowed.
    #[must_use]
    pub const fn next_start(self, recovered: Uptime) -> Uptime {
        Uptime(recovered.0.saturating_sub(self.window() - self.interval))
    }

    /// The instant of recovery, no further ahead than starts under this rate can have moved it. Without this a rule that changed, or a
    /// clock that was set back while the server was away, could block a rate for long.
    #[must_use]
    pub fn clamp(self, recovered: Uptime, now: Uptime) -> Uptime {
        Uptime(recovered.0.min(now.0.saturating_add(self.window())))
    }

    /// The instant of recovery after a start.
    #[must_use]
    pub fn after_start(self, recovered: Uptime, now: Uptime) -> Uptime {
        Uptime(recovered.0.max(now.0).saturating_add(self.interval))
    }
}

/// The instant of recovery by the wall clock, which outlives the process; rounded up.
#[must_use]
pub fn to_utc(recovered: Uptime, now: Now) -> Timestamp {
    let ahead = recovered.0.saturating_sub(now.up.0).div_ceil(NANOS_PER_MILLI);
    Timestamp(now.utc.0.saturating_add_unsigned(ahead))
}

/// The instant of recovery by the monotonic clock of this process.
#[must_use]
pub fn to_uptime(recovered: Timestamp, now: Now) -> Uptime {
    let ahead = u64::try_from(recovered.0.saturating_sub(now.utc.0)).unwrap_or(0);
    now.up + Duration::from_millis(ahead)
}

const NANOS_PER_MILLI: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_window_sees_more_starts_than_its_length_and_the_burst_allow(
            limit in 1..20_u32, per in 1..10_000_u64, burst in 1..10_u32, pauses in prop::collection::vec(0..3_000_u64, 1..80),
        ) {
            let rate = Rate::of(&RateLimit { limit, per: Duration::from_nanos(per), burst, key: None });
            let (mut now, mut recovered) = (0, Uptime(0));
            let mut starts: Vec<u64> = Vec::new();
            for pause in pauses {
                now += pause;
                if rate.next_start(recovered) <= Uptime(now) {
                    recovered = rate.after_start(recovered, Uptime(now));
                    starts.push(now);
                }
            }
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let allowed = u64::from(burst) + (to - from) / rate.interval;
                    prop_assert!((last - first + 1) as u64 <= allowed, "{starts:?} by {rate:?}");
                }
            }
        }

        #[test]
        fn a_start_is_allowed_at_the_announced_instant(
            interval in 1..1_000_u64, burst in 1..10_u32, recovered in 0..100_000_u64, now in 0..100_000_u64,
        ) {
            let rate = Rate { interval, burst };
            let recovered = rate.clamp(Uptime(recovered), Uptime(now));
            let at = rate.next_start(recovered).max(Uptime(now));
            prop_assert!(at.0 <= now + rate.interval, "nobody waits for longer than one interval");
        }
    }

    #[test]
    fn ten_a_minute_are_six_seconds_apart_and_a_burst_goes_at_once() {
        let rule = RateLimit { limit: 10, per: Duration::from_secs(60), burst: 3, key: None };
        let rate = Rate::of(&rule);
        let second = 1_000_000_000;
        let mut recovered = Uptime(0);
        let begin = Uptime(1_000 * second);
        let mut now = begin;
        let starts: Vec<u64> = (0..5)
            .map(|_| {
                now = rate.next_start(recovered).max(now);
                recovered = rate.after_start(recovered, now);
                now.since(begin).as_secs()
            })
            .collect();
        assert_eq!(starts, [0, 0, 0, 6, 12]);
    }
}
