//! The only place of the server that reads the system's clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::{Now, Timestamp, Uptime};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks of now. The monotonic one counts suspend: a lease does not last longer because a laptop slept.
#[must_use]
pub fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    let boot = clock_gettime(ClockId::Boottime);
    let nanos = u64::try_from(boot.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    let up = Uptime(nanos.saturating_add(u64::try_from(boot.tv_nsec).unwrap_or(0)));
    Now { utc, up }
}
