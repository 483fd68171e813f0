//! Inputs of the scheduler.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::Availability;
use protocol::resources::OfferedResources;
use protocol::version::VersionRange;
use protocol::{
    ClusterId, Fence, Incarnation, JobId, Report, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime,
    WorkerId,
};

use crate::batches::{BatchOptions, BatchUpdate};
use crate::definition::Definition;
use crate::ids::{GroupNo, JoinTokenId, Ticket};
use crate::new_jobs::{NewJobs, StartTime};
use crate::origin::Origin;
use crate::pauses::PauseTarget;
use crate::schedule::ScheduleId;

/// An input.
#[derive(Clone, Debug)]
pub enum Input {
    /// jobs.yaml was loaded; these are its definitions.
    ReplaceDefinitions(Vec<Arc<Definition>>),
    /// Adds a definition that is not in jobs.yaml any more, because an ended job is to be run again as it
    /// was.
    AddDefinition(Arc<Definition>),
    /// A client submits jobs.
    Submit(Submit),
    /// A client cancels a job.
    Cancel(CancelRequest),
    /// A client cancels all members of a batch.
    CancelBatch(CancelBatchRequest),
    /// A client changes the limits of a batch.
    ChangeBatch(ChangeBatchRequest),
    /// An operator releases a job from quarantine or from a worker that does not answer.
    Release(ReleaseRequest),
    /// A client changes the start or the priority of a waiting job.
    Update(UpdateRequest),
    /// A worker said Hello on a new session.
    Connected(Connected),
    /// A session's socket was closed.
    Disconnected(SessionId),
    /// A worker sent a report on its session.
    Reported(SessionId, Report),
    /// The archive does not contain these attempts, and they were not deleted from it. Sent before the part
    /// of the inventory that lists them.
    UnknownAttempts(SessionId, Vec<Token>),
    /// The archive does not know these attempts as those of the worker of this session. Sent before the report that names them.
    AttemptsNotOwned(SessionId, Vec<Token>),
    /// Frames were received on these sessions, the last one at this time. Sent before a Tick, about the sessions that
    /// [`Scheduler::sessions_to_check`](crate::Scheduler::sessions_to_check) names.
    SessionsActive(Vec<(SessionId, Uptime)>),
    /// These attempts were to be enqueued on this session and could not be sent, because it had closed.
    Unsent(SessionId, Vec<Token>),
    /// An operator changes a worker.
    Operate(Ticket, WorkerId, Operation),
    /// Labels with these names belong to the server from now on: no worker may claim them any more.
    ReserveLabels(Ticket, Vec<String>),
    /// Somebody pauses the server, a group, a definition or a schedule, or lets it go on.
    Pause(PauseRequest),
    /// The revisions of definitions whose secrets the server does not have, in place of those before. They are in no store: the server looks
    /// again after a start, and repeats the list as long as it is not empty.
    MissingSecrets(BTreeSet<Revision>),
    /// A client wants jobs for past slots of a schedule.
    Backfill(BackfillRequest),
    /// Time has passed; timers that are due fire.
    Tick,
}

/// A submission; all of its jobs are accepted or none.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The jobs, in order.
    pub jobs: NewJobs,
    /// The jobs form a batch (one request for many).
    pub batch: Option<BatchOptions>,
    /// Reject the request if no connected worker could run its jobs.
    pub require_worker: bool,
    /// The key that names this request, so that a repetition makes nothing.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// An idempotency key and the result of its lookup in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The client's key, prefixed with its scope.
    pub key: Arc<str>,
    /// Hash of the request.
    pub digest: u128,
    /// The earlier request with this key, if the archive has one.
    pub found: Option<KeyHolder>,
    /// The last commit that the lookup had seen.
    pub read_at: GroupNo,
}

/// The first request with an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// Its first job.
    pub job: JobId,
    /// Number of its jobs; their ids are consecutive.
    pub count: u32,
    /// Hash of the request.
    pub digest: u128,
}

/// A request to cancel a job.
#[derive(Clone, Debug)]
pub struct CancelRequest {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The job to cancel.
    pub job: JobId,
    /// The states in which it is cancelled.
    pub scope: CancelScope,
    /// The requester, for the job's history.
    pub by: String,
}

/// The states in which a job is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelScope {
    /// Every one: if a worker has it, its container is stopped.
    Any,
    /// Those in which no worker has it.
    Waiting,
}

/// A request to cancel all members of a batch that have not ended.
#[derive(Clone, Debug)]
pub struct CancelBatchRequest {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The first member of the batch.
    pub batch: JobId,
    /// The requester, for the history of the members.
    pub by: Arc<str>,
}

/// A request to change the limits of a batch with members that have not ended.
#[derive(Clone, Debug)]
pub struct ChangeBatchRequest {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The first member of the batch.
    pub batch: JobId,
    /// The new limits.
    pub update: BatchUpdate,
}

/// A request to release a job.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The job to release.
    pub job: JobId,
    /// The requester, for the job's history.
    pub by: String,
}

/// A request to change a job that waits.
#[derive(Clone, Debug)]
pub struct UpdateRequest {
    /// Identifies the request.
    pub ticket: Ticket,
    /// The job to change.
    pub job: JobId,
    /// The new values.
    pub update: JobUpdate,
    /// The requester, for the job's history.
    pub by: String,
}

/// New values for a job that waits; an absent value stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobUpdate {
    /// Earliest start.
    pub run_at: Option<StartTime>,
    /// Higher goes first; −100 to 100.
    pub priority: Option<i8>,
}

/// A request to pause jobs and schedules, or to let them go on.
#[derive(Clone, Debug)]
pub struct PauseRequest {
    /// Ticket of the answer.
    pub ticket: Ticket,
    /// The jobs and schedules.
    pub target: PauseTarget,
    /// True to pause, false to resume.
    pub paused: bool,
    /// Wall-clock time at which a pause ends by itself.
    pub until: Option<Timestamp>,
    /// The requester, and the reason of a pause. A resume has no reason.
    pub origin: Origin,
}

/// A request for the jobs of past slots, as [`crate::schedule::backfill::plan`] has chosen them.
#[derive(Clone, Debug)]
pub struct BackfillRequest {
    /// Ticket of the answer.
    pub ticket: Ticket,
    /// The definition.
    pub definition: Arc<str>,
    /// Id among its schedules.
    pub schedule: ScheduleId,
    /// Decided slots that no job was made for, in order; at most [`crate::schedule::backfill::SLOTS_MAX`].
    pub slots: Vec<Timestamp>,
    /// From the earliest start of a job to that of the next one.
    pub interval: Duration,
    /// The name of the requester, if it is known.
    pub submitted_by: Option<Arc<str>>,
    /// The last commit that the reading of the ledger had seen.
    pub read_at: GroupNo,
}

/// A worker's Hello.
#[derive(Clone, Debug)]
pub struct Connected {
    /// The new session, numbered within the server process.
    pub session: SessionId,
    /// The worker's name.
    pub name: Arc<str>,
    /// SHA-256 of the worker's secret.
    pub secret_hash: [u8; 32],
    /// The cluster that the worker joined before, if any.
    pub cluster: Option<ClusterId>,
    /// Join even if the secret is unknown or the cluster is another one.
    pub rejoin: bool,
    /// Start counter of the worker's state directory.
    pub incarnation: Incarnation,
    /// Random number of the worker process.
    pub process: u64,
    /// Protocol versions that the worker speaks.
    pub versions: VersionRange,
    /// Id of the Docker engine.
    pub engine: Option<String>,
    /// Version of the worker's program.
    pub version: String,
    /// Containers that may run at once.
    pub slots: u32,
    /// Attempts that may wait in the worker's backlog.
    pub backlog: u32,
    /// The worker's own labels.
    pub labels: Vec<(String, String)>,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Resources that jobs may reserve.
    pub resources: OfferedResources,
    /// Network address, for people.
    pub address: String,
    /// Its right to join, if the secret is not known.
    pub join: JoinPermit,
}

/// The right of a connection to join a worker whose secret is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinPermit {
    /// It may. The worker gets these labels for as long as it lives.
    Granted {
        /// The join token, if it is in the store.
        token: Option<JoinTokenId>,
        /// Ordered by name.
        labels: Vec<(String, String)>,
    },
    /// It may not: it was let in as this worker, by the worker's own secret.
    OnlyAs(WorkerId),
    /// It may not: as many workers have joined by its token as may.
    UsedUp,
}

impl Default for JoinPermit {
    fn default() -> Self {
        Self::Granted { token: None, labels: Vec::new() }
    }
}

/// An operator's command about a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Give the worker no new attempts.
    Cordon {
        /// Wall-clock time at which the cordon ends by itself; absent: an operator ends it.
        until: Option<Timestamp>,
        /// The requester and the reason.
        origin: Origin,
    },
    /// Give the worker attempts again; ends a drain in progress.
    Uncordon,
    /// Give the worker no new attempts and let it leave when it has none. Running attempts are stopped after
    /// this time, if it is given.
    Drain(Option<Duration>, Origin),
    /// Set the number of containers that may run at once.
    Slots(u32),
    /// Set labels over the worker's own; no value removes a label that was set.
    Labels(Vec<(String, Option<String>)>),
    /// Trust a suspect worker again, and end its exclusions.
    Reset,
    /// Remove a worker that is not connected.
    Forget,
    /// Refuse the worker's secret for ever, and close its session.
    Revoke,
    /// Stop unmanaged attempts: all of them, or this one.
    StopUnmanaged(Option<(JobId, Fence)>),
}
