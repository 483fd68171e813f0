//! The position of a job among all that wait.

use core::cmp::Reverse;

use protocol::{JobId, Timestamp};

use super::{AgedPriority, PriorityAgeing};

/// Position of a job in the order of all waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    pub(super) priority: Reverse<AgedPriority>,
    pub(super) goes_first: Reverse<bool>,
    /// With ageing, the virtual due time.
    pub(super) due: Timestamp,
    pub(super) job: JobId,
    /// The job's priority without ageing. It is last, so it does not count in the order.
    own_priority: i8,
}

impl QueueKey {
    /// Creates the key of a job.
    #[must_use]
    pub const fn new(
        ageing: PriorityAgeing,
        priority: i8,
        goes_first: bool,
        due: Timestamp,
        job: JobId,
    ) -> Self {
        let (aged, due) = ageing.rank(priority, due);
        Self { priority: Reverse(aged), goes_first: Reverse(goes_first), due, job, own_priority: priority }
    }

    /// The priority of the job in whole steps, as it is compared with others.
    #[must_use]
    pub const fn priority(&self) -> AgedPriority {
        self.priority.0
    }

    /// The priority of the job without ageing.
    #[must_use]
    pub const fn own_priority(&self) -> i8 {
        self.own_priority
    }

    /// The job.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.job
    }
}
