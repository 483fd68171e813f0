//! Times from which the server counts as suspended: between two steps, and for one commit. `handlers::suspension` decides by them.

use core::time::Duration;

use protocol::Uptime;

use crate::TICK_WITHIN;

/// Maximum time between two steps: [`TICK_WITHIN`], or a sixth of a short lease. A longer pause is a
/// suspension and not a lack of work.
pub(crate) fn tick_within(lease: Duration) -> Duration {
    TICK_WITHIN.min(lease / 6)
}

/// Pause from which the server counts as suspended. A worker that sends heartbeats in time has sent one
/// within a lease before that.
pub(crate) fn suspended_after(lease: Duration) -> Duration {
    tick_within(lease) * 2
}

/// Measures commits, to detect a stalled store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitWatch {
    /// Begin of the commit in progress.
    since: Option<Uptime>,
    /// A commit that ended since the last step took too long.
    pub(crate) stalled: bool,
    /// Leases were renewed for the commit in progress.
    pub(crate) renewed: bool,
}

impl CommitWatch {
    pub(crate) const fn begin(&mut self, at: Uptime) {
        self.since = Some(at);
        self.renewed = false;
    }

    pub(crate) fn end(&mut self, at: Uptime, lease: Duration) {
        self.stalled |= self.is_stalled(at, lease);
        self.since = None;
    }

    /// The commit in progress takes so long that workers get no answers.
    pub(crate) fn is_stalled(self, now: Uptime, lease: Duration) -> bool {
        self.since.is_some_and(|since| now.since(since) > suspended_after(lease))
    }
}
