//! The state that a start reads from the store.

use protocol::{ClusterId, Epoch, Fence, JobId, Timestamp, WorkerId};
use scheduler::batches::LiveBatch;
use scheduler::dependencies::LiveDependency;
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::limits::RateRow;
use scheduler::restore::{LiveJob, Unconfirmed};
use scheduler::run_on::LiveParent;
use scheduler::schedules::LiveSchedules;
use scheduler::unique::UniqueRow;

use super::StoredDefinition;

/// A part of the state that a start reads.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "items are handed out one by one; a box for each of a million jobs would cost more"
)]
pub enum LoadItem<'l> {
    /// The first item: everything but the live jobs and their definitions.
    Base(&'l Loaded),
    /// A definition, before the first job and the first unconfirmed attempt of it.
    Definition(&'l StoredDefinition),
    /// A job that has not ended.
    Job(LiveJob, JobOrigin),
}

/// Facts about a live job that no decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobOrigin {
    /// When it was accepted.
    pub created_at: Timestamp,
    /// The first job of its batch, if it belongs to one.
    pub batch: Option<JobId>,
}

/// A visitor of live jobs only, for [`super::Store::load`].
pub fn live_jobs(mut visit: impl FnMut(LiveJob)) -> impl FnMut(LoadItem<'_>) {
    move |item| {
        if let LoadItem::Job(job, _) = item {
            visit(job);
        }
    }
}

/// The facts that a start needs beside the live jobs.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The new term.
    pub epoch: Epoch,
    /// The installation.
    pub cluster: ClusterId,
    /// The last committed group.
    pub group: GroupNo,
    /// The highest job number ever given.
    pub last_job: JobId,
    /// The highest fence ever given.
    pub last_fence: Fence,
    /// The highest worker number ever given.
    pub last_worker: WorkerId,
    /// Every worker ever joined and not forgotten.
    pub workers: Vec<WorkerRow>,
    /// Attempts of cancelled jobs whose containers nobody knows to be gone.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The stored state of schedules.
    pub schedules: LiveSchedules,
    /// The stored state of expectations.
    pub expectations: Vec<ExpectationRow>,
    /// The batches with members that have not ended.
    pub batches: Vec<LiveBatch>,
    /// The parents that have not ended, with their members.
    pub parents: Vec<LiveParent>,
    /// The stored state of rates.
    pub rates: Vec<RateRow>,
    /// Dependencies that are not decided.
    pub dependencies: Vec<LiveDependency>,
    /// The unique keys that are taken.
    pub unique: Vec<UniqueRow>,
    /// The time that retention went by, as it was last written down.
    pub last_retention_time: Option<Timestamp>,
}
