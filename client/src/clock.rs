//! The only module of the worker that reads the system's clocks.

use protocol::{Now, Timestamp, Uptime};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks: UTC for people, and the time since boot, counting suspend, for leases and timeouts.
#[must_use]
pub fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    let boot = clock_gettime(ClockId::Boottime);
    Now {
        utc: Timestamp(wall.tv_sec * 1_000 + wall.tv_nsec / 1_000_000),
        up: Uptime(
            u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000_000
                + u64::try_from(boot.tv_nsec).unwrap_or(0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_boot_never_goes_back() {
        let first = now();
        assert!(now().up >= first.up);
        assert!(first.utc > Timestamp(0));
    }
}
