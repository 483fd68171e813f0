//! The start time of an attempt by the monotonic clock. The engine gives it by the wall clock, which may be set.

use protocol::Uptime;

use super::AttemptDir;
use crate::identity;

impl AttemptDir {
    /// Records the start for a later process of the same boot. Without it the start is only less precise.
    pub fn record_start(&self, at: Uptime) {
        if let Err(error) = identity::write_uptime(&self.path.join(STARTED), at) {
            tracing::debug!(directory = %self.path.display(), %error, "cannot record the start of an attempt");
        }
    }

    /// The recorded start, if the machine was not booted since.
    #[must_use]
    pub fn start(&self) -> Option<Uptime> {
        identity::read_uptime(&self.path.join(STARTED)).ok().flatten()
    }
}

const STARTED: &str = "started";
