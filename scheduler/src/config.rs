//! What a scheduler is told at its start: its settings, and where its numbers go on.

use protocol::order::Intervals;
use protocol::{ClusterId, Epoch, Fence, JobId, WorkerId};

use crate::input::GroupNo;

/// What a scheduler is told at its start and keeps.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The installation.
    pub cluster: ClusterId,
    /// The term in which this scheduler decides.
    pub epoch: Epoch,
    /// Times that both sides keep.
    pub intervals: Intervals,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How much of a large batch is made in one group: so many members, if they add nothing to their definitions, else fewer. A batch
    /// that is not larger is made at once.
    pub slice: usize,
    /// How many jobs that have not ended there may be: each is in memory. Those of a restored store may be more; then no new ones come.
    pub jobs_max: usize,
}

#[cfg(test)]
impl Config {
    /// Of a new installation without a limit of jobs.
    pub(crate) fn for_tests() -> Self {
        let (cluster, epoch) = (ClusterId(1), Epoch(1));
        let intervals = Intervals::default();
        Self { cluster, epoch, intervals, seed: 1, slice: 1_000, jobs_max: usize::MAX }
    }
}

/// The highest numbers given so far; none is ever given again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Jobs.
    pub job: JobId,
    /// Attempts.
    pub fence: Fence,
    /// Workers.
    pub worker: WorkerId,
    /// Commits.
    pub group: GroupNo,
}
