//! The cause and the time of a stop. An attempt that had ended before that time ended by itself.

use protocol::Now;
use protocol::order::StopCause;

use crate::boot::RecordedInstant;

/// A recorded stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The cause that was recorded first.
    pub cause: StopCause,
    /// Time of the decision.
    pub at: RecordedInstant,
}

impl Stopping {
    /// The same stop by the monotonic clock of the state machine.
    #[must_use]
    pub fn by_uptime(self, now: Now) -> worker::input::Stopping {
        worker::input::Stopping { cause: self.cause, at: self.at.by_uptime(now) }
    }
}
