//! When its program started, by the clock that nobody sets: the engine's own word for it goes by the other one.

use protocol::Uptime;

use super::AttemptDir;
use crate::identity;

impl AttemptDir {
    /// Keeps it for a later process of this boot of the machine. Nothing is lost without it but precision.
    pub fn note_start(&self, at: Uptime) {
        if let Err(error) = identity::put_moment(&self.path.join(STARTED), at) {
            tracing::debug!(directory = %self.path.display(), %error, "when it started is not kept");
        }
    }

    /// When it started, if that was kept, and the machine was not booted since.
    #[must_use]
    pub fn start(&self) -> Option<Uptime> {
        identity::moment(&self.path.join(STARTED)).ok().flatten()
    }
}

const STARTED: &str = "started";
