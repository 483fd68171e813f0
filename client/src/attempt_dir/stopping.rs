//! Why an attempt is being stopped, and since when: what had ended before has ended by itself, whoever reads that.

use std::time::Duration;

use protocol::order::StopCause;
use protocol::{Now, Timestamp, Uptime};

/// Why an attempt is being stopped, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The cause.
    pub cause: StopCause,
    /// Since when; a wall clock, because a machine's uptime means nothing after a reboot.
    pub at: Timestamp,
}

impl Stopping {
    /// For the brain, which counts by the other clock.
    #[must_use]
    pub fn told(self, now: Now) -> worker::input::Stopping {
        let at = (now.up - now.utc.since(self.at)).max(EARLIEST);
        worker::input::Stopping { cause: self.cause, at }
    }

    /// For the brain, the instant of what certainly was before.
    #[must_use]
    pub fn before(self, now: Now) -> Uptime {
        self.told(now).at - BEFORE
    }
}

/// Told twice, it is not the same to the millisecond.
const BEFORE: Duration = Duration::from_millis(5);
/// There is something before it.
const EARLIEST: Uptime = Uptime(10_000_000);
