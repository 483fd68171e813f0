//! The only module of the server that reads the system's clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::{Now, Timestamp, Uptime};
use rustix::time::{ClockId, clock_gettime};

/// The wall clock and the monotonic clock. The monotonic one counts suspend, so a lease does not last longer because a laptop slept.
#[must_use]
pub fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    let boot = clock_gettime(ClockId::Boottime);
    let nanos = u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    let up = Uptime(nanos.saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0)));
    Now { utc, up }
}

/// Notices that the wall clock was set: between two looks it moved by another amount than the monotonic clock
/// (docs/design/failures.md, F13).
#[derive(Debug)]
pub struct Watch {
    last: Now,
    times_set: u64,
}

impl Watch {
    /// Compares with this time at the next look.
    #[must_use]
    pub const fn new(now: Now) -> Self {
        Self { last: now, times_set: 0 }
    }

    /// Milliseconds by which the wall clock was set since the last look, and how often it was set since the start. Drift and the
    /// corrections of a time service stay far below the threshold.
    pub fn look(&mut self, now: Now) -> Option<(i64, u64)> {
        let by_wall = now.utc.0.saturating_sub(self.last.utc.0);
        let passed = i64::try_from(now.up.since(self.last.up).as_millis()).unwrap_or(i64::MAX);
        self.last = now;
        let by = by_wall.saturating_sub(passed);
        if by.unsigned_abs() <= SET_BY_MIN {
            return None;
        }
        self.times_set += 1;
        Some((by, self.times_set))
    }
}

/// Milliseconds. Two looks are at most some seconds apart.
const SET_BY_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed_once_and_one_that_drifts_is_not() {
        let at = |wall: i64, seconds: u64| Now { utc: Timestamp(wall), up: Uptime(seconds * 1_000_000_000) };
        let mut watch = Watch::new(at(1_000_000, 0));
        assert_eq!(watch.look(at(1_005_250, 5)), None, "fast by five per cent");
        assert_eq!(watch.look(at(1_010_250, 10)), None);
        assert_eq!(watch.look(at(4_615_250, 15)), Some((3_600_000, 1)));
        assert_eq!(watch.look(at(4_620_250, 20)), None);
        assert_eq!(watch.look(at(0, 21)), Some((-4_621_250, 2)));
    }
}
