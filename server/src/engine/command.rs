//! The commands that the rest of the server sends to the engine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, Revision, Timestamp, WorkerId};
use scheduler::batches::{BatchOptions, BatchUpdate};
use scheduler::definition::Definition;
use scheduler::explain::Explanation;
use scheduler::ids::GroupNo;
use scheduler::input::{CancelScope, IdempotencyKey, JobUpdate, Operation};
use scheduler::job::State;
use scheduler::limits::{LimitSelection, LimitsReport};
use scheduler::new_jobs::NewJobs;
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;
use scheduler::step::{Answer, PendingReason};
use tokio::sync::oneshot;

use crate::catalogue::Definitions;

/// Jobs that wait, each with the reason.
pub(super) type PendingReasons = Vec<(JobId, PendingReason)>;

/// A request to the engine, with the channel for the answer.
#[derive(Debug)]
pub enum Command {
    /// Creates jobs: all of them or none.
    Submit {
        /// The new jobs, in the order of the request.
        jobs: NewJobs,
        /// The jobs form a batch.
        batch: Option<BatchOptions>,
        /// Refuse if no connected worker could run them.
        require_worker: bool,
        /// The request's idempotency key, with a reading of the archive.
        key: Option<IdempotencyKey>,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Cancels a job.
    Cancel {
        /// The job's number.
        job: JobId,
        /// The states in which it is cancelled.
        scope: CancelScope,
        /// The caller's name, for the job's notes.
        by: String,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Cancels the members of a batch that have not ended.
    CancelBatch {
        /// The first member.
        batch: JobId,
        /// The caller's name, for the notes of the members.
        by: Arc<str>,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Changes the limits of a batch.
    ChangeBatch {
        /// The first member of the batch.
        batch: JobId,
        /// The new limits.
        update: BatchUpdate,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Releases a job that is held back.
    Release {
        /// The job's number.
        job: JobId,
        /// The caller's name, for the job's notes.
        by: String,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Changes a job that waits.
    Update {
        /// The job's number.
        job: JobId,
        /// The new values.
        update: JobUpdate,
        /// The caller's name, for the job's notes.
        by: String,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Changes a worker: cordon, drain, slots, labels, forget.
    Operate {
        /// The worker's number.
        worker: WorkerId,
        /// The change to make.
        operation: Operation,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Takes labels away from workers that claim them.
    ReserveLabels {
        /// The names of the labels.
        names: Vec<String>,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Pauses what the target names, or lets it go on.
    Pause {
        /// The server, a group, a definition or a schedule.
        target: PauseTarget,
        /// True to pause, false to resume.
        paused: bool,
        /// Wall-clock time at which a pause ends by itself.
        until: Option<Timestamp>,
        /// The requester, and the reason of a pause.
        origin: Origin,
        /// Channel for the answer.
        reply: oneshot::Sender<Answer>,
    },
    /// Makes the jobs of past slots of a schedule.
    Backfill {
        /// The definition.
        definition: Arc<str>,
        /// The id of the schedule.
        schedule: ScheduleId,
        /// The slots, by a reading of the ledger.
        slots: Vec<Timestamp>,
        /// From the earliest start of a job to that of the next one.
        interval: Duration,
        /// The name of the requester, if it is known.
        by: Option<Arc<str>>,
        /// The last commit that the reading had seen.
        read_at: GroupNo,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Answer>,
    },
    /// Replaces the definitions after jobs.yaml was reloaded.
    ReplaceDefinitions {
        /// All definitions of the file.
        definitions: Arc<Definitions>,
    },
    /// Adds a stored definition that is about to be used.
    AddDefinition {
        /// The definition from the archive.
        definition: Arc<Definition>,
    },
    /// Names the revisions whose secrets the server does not have, in place of those before.
    MissingSecrets(BTreeSet<Revision>),
    /// Reads limits that jobs need.
    Limits {
        /// The limits to read.
        selection: LimitSelection,
        /// Receives the answer.
        reply: oneshot::Sender<LimitsReport>,
    },
    /// Explains why a job waits or where it runs. The answer is none for a job that is not live.
    Explain {
        /// The job's number.
        job: JobId,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<Option<Explanation>>,
    },
    /// Reads why jobs wait.
    PendingReasons {
        /// Their numbers.
        jobs: Vec<JobId>,
        /// Receives the answer: those that wait.
        reply: oneshot::Sender<PendingReasons>,
    },
    /// Waits for the end of a job. For a job that is not live the sender is dropped without an answer.
    AwaitEnd {
        /// The job's number.
        job: JobId,
        /// Receives the answer after its commit.
        reply: oneshot::Sender<State>,
    },
}
