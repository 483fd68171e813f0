//! Settings of a scheduler and the counters that it continues.

use core::time::Duration;

use protocol::order::Intervals;
use protocol::{ClusterId, Epoch, Fence, JobId, WorkerId};

use crate::ids::GroupNo;
use crate::queue::PriorityAgeing;
use crate::results::ParamsOfResult;

/// Settings that a scheduler keeps for its lifetime.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The term in which this scheduler decides.
    pub epoch: Epoch,
    /// Heartbeat, lease and start gate.
    pub intervals: Intervals,
    /// Seed of the random generator.
    pub seed: u64,
    /// Members of a large batch that are created per group, if they add nothing to their definitions; else
    /// fewer. Smaller batches are created at once.
    pub slice: usize,
    /// Limit of jobs that have not ended; each is in memory. A restored store may hold more; then no new jobs
    /// are accepted.
    pub jobs_max: usize,
    /// Limits on jobs that run or wait.
    pub server_limits: ServerLimits,
    /// Growth of the priority of waiting jobs.
    pub priority_ageing: PriorityAgeing,
    /// The wait for resources after which a worker is set aside for a job; never if absent.
    pub set_aside_after: Option<Duration>,
    /// Takes the parameters of a hook's job out of its parent's result.
    pub params_of_result: ParamsOfResult,
}

/// Limits on the jobs of all definitions together.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerLimits {
    /// Jobs that hold a worker at once; unlimited if absent.
    pub running_max: Option<usize>,
    /// Jobs that wait for a worker or a limit; unlimited if absent. A restored store may hold more.
    pub queued_max: Option<usize>,
}

#[cfg(test)]
impl Config {
    /// Settings of a new cluster without a limit of jobs.
    pub(crate) fn for_tests() -> Self {
        let (cluster, epoch) = (ClusterId(1), Epoch(1));
        let intervals = Intervals::default();
        Self {
            cluster,
            epoch,
            intervals,
            seed: 1,
            slice: 1_000,
            jobs_max: usize::MAX,
            server_limits: ServerLimits::default(),
            priority_ageing: PriorityAgeing::OFF,
            set_aside_after: None,
            params_of_result: crate::results::ignore_result,
        }
    }
}

/// The highest numbers assigned so far; none is assigned twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Last job.
    pub job: JobId,
    /// Last attempt.
    pub fence: Fence,
    /// Last worker.
    pub worker: WorkerId,
    /// Last commit.
    pub group: GroupNo,
}
