//! Facts that one search leaves for the next ones: for attempts to recall, and for workers to set aside.

use alloc::collections::BTreeMap;
use core::time::Duration;

use protocol::{JobId, Now, Uptime, WorkerId};

use crate::queue::QueueKey;

/// Times of the last searches, and their results that later ones need. A search costs more than a step and is not done in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacementSearches {
    /// Last search for attempts that give way to a higher priority.
    pub(super) for_higher: Option<Uptime>,
    /// Last search for a backlog to empty for a job that takes a free slot only.
    pub(super) for_slot: Option<Uptime>,
    /// Last search for attempts that suit free slots.
    pub(super) for_idle: Option<Uptime>,
    /// Last search for a worker to set aside.
    pub(super) to_set_aside: Option<Uptime>,
    /// The last waiting job that it looked at; the next search goes on after it.
    pub(super) looked_until: Option<QueueKey>,
    /// Waiting jobs that take free slots only, with the workers whose backlogs were emptied for them.
    pub(super) emptied: BTreeMap<JobId, WorkerId>,
}

/// The time of the next search, if that is not now.
pub(super) fn not_before(last: Option<Uptime>, every: Duration, now: Now) -> Option<Uptime> {
    last.map(|at| at + every).filter(|at| *at > now.up)
}

/// Interval between searches through backlogs.
pub(super) const BACKLOGS_EVERY: Duration = Duration::from_millis(100);
