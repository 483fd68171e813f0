//! Times of searches for attempts to recall.

use protocol::Uptime;

/// Times of the last searches. A search costs more than a step and is not done in each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SearchTimes {
    /// Last search for attempts that give way to a higher priority.
    pub(super) for_higher: Option<Uptime>,
    /// Last search for a backlog to empty for a job that takes a free slot only.
    pub(super) for_slot: Option<Uptime>,
    /// Last search for attempts that suit free slots.
    pub(super) for_idle: Option<Uptime>,
}
