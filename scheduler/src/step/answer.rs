//! Answers to requests.

use alloc::boxed::Box;
use alloc::sync::Arc;

use protocol::{JobId, Timestamp};

use crate::dependencies::PredecessorId;
use crate::input::KeyHolder;
use crate::pauses::PauseResult;
use crate::state::State;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The jobs were accepted; their ids are consecutive.
    Accepted(Accepted),
    /// The same request was accepted before.
    Replayed(KeyHolder),
    /// No job was made, because this one has the unique key.
    Duplicate(JobId),
    /// No batch was made, because this one has the unique key.
    ExistingBatch {
        /// Its first member.
        first: JobId,
        /// Number of its members.
        count: u32,
    },
    /// A cancel was accepted.
    CancelRequested {
        /// The state after the request: `Cancelled`, or the present one as long as a container of the job may run.
        state: State,
    },
    /// The cancel of a batch was accepted, now or before.
    BatchCancelRequested {
        /// Members that had not ended before the request.
        live: u32,
        /// Those of them that have ended with it. The others end in later steps, or when their containers are gone.
        ended: u32,
    },
    /// The operator's command was carried out.
    Done,
    /// The pause that a command to pause or resume found, and the one that it left.
    Pause(Box<PauseResult>),
    /// The request was rejected.
    Rejected(Rejection),
}

/// Accepted jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Number of the first job; the others follow.
    pub first: JobId,
    /// Number of jobs.
    pub count: u32,
    /// Wall-clock time of the acceptance.
    pub created_at: Timestamp,
    /// State of the first job.
    pub state: State,
    /// Pending reason of the first job, if it waits.
    pub pending: Option<PendingReason>,
    /// The batch that the new one replaces.
    pub replaces: Option<JobId>,
}

/// Reason for a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The definition does not exist.
    UnknownDefinition,
    /// The definition is not enabled.
    Disabled,
    /// The idempotency key belongs to another request.
    KeyMismatch(KeyHolder),
    /// The lookup of the key is too old: repeat it.
    KeyReadingTooOld,
    /// No connected worker could run the job, and the client required one.
    NoWorker(PendingReason),
    /// Too many large batches are in progress: try again later.
    TooManyPendingBatches,
    /// There would be too many jobs that have not ended: try again when some have.
    QueueFull {
        /// The limit.
        jobs_max: usize,
        /// Number of requested jobs; above the limit a retry is useless.
        asked: usize,
    },
    /// Too many jobs wait: try again when some have started.
    TooManyQueued {
        /// The limit.
        queued_max: usize,
        /// Number of requested jobs; above the limit a retry is useless.
        asked: usize,
        /// The limit is that of the definition, and not that of the server.
        of_definition: bool,
    },
    /// No permit is left, and the definition refuses jobs then: try again when some have ended.
    LimitFull {
        /// The limit.
        limit: Arc<str>,
        /// Number of its permits.
        permits: u32,
    },
    /// Another job has the unique key, and the definition refuses duplicates.
    Duplicate {
        /// The job that has the key; absent if it is another one of the same request.
        job: Option<JobId>,
    },
    /// A batch that has not ended has the unique key, and the request, or its being a retry, forbids to replace it.
    DuplicateBatch {
        /// The batch that has the key.
        batch: JobId,
    },
    /// A large batch with the unique key is being made: try again when it is complete.
    BatchKeyPending,
    /// Another batch has got the unique key since the rights of the requester were looked up: look again.
    HolderLookupTooOld,
    /// The request has too many jobs for a definition with unique keys.
    TooManyUnique {
        /// Jobs of one request.
        max: usize,
    },
    /// Too many jobs ask for different workers: try again when some have ended.
    TooManyNarrowings,
    /// A definition with unique keys has no backfill.
    UniqueBackfill,
    /// This job or batch, which jobs of the request are to come after, has ended or does not exist: ask the archive again.
    PredecessorEnded(PredecessorId),
    /// The job or the batch has ended or does not exist: ask the archive.
    NotLive,
    /// The job is neither in quarantine nor on a worker that does not answer; its state.
    NothingToRelease(State),
    /// The job is neither scheduled nor queued, so it cannot be changed; its state.
    NotWaiting(State),
    /// No schedule of jobs.yaml is meant.
    UnknownSchedule,
    /// Another backfill of the schedule was accepted after this one had read the ledger: read it again.
    LedgerReadingTooOld,
    /// The worker does not exist.
    UnknownWorker,
    /// The worker is connected or holds attempts.
    WorkerConnected,
    /// The store refused the changes of this request twice. The server answers this, never the scheduler.
    RefusedBefore,
    /// The worker would have too many labels.
    TooManyLabels,
    /// As many batches are paused as may be at once: resume or cancel some, or pause a definition or a group.
    TooManyPausedBatches {
        /// The limit.
        max: usize,
    },
    /// The worker is not connected, and the command cannot wait.
    WorkerAway,
    /// The worker has no such unmanaged attempt.
    NotUnmanaged,
}

/// Reason why a job waits. The order matters: of two reasons of workers, the greater one is nearer to a start. [`Self::ServerFull`],
/// [`Self::Limited`] and [`Self::RateLimited`] are compared with them, too; the other reasons never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PendingReason {
    /// It is not due yet.
    NotDue,
    /// Jobs that it comes after have not ended yet.
    Dependencies,
    /// The job that it replaces has not ended yet.
    Replacing,
    /// No member of it has started yet.
    Members,
    /// Its batch, its definition, the group of that, or the whole server is paused.
    Paused,
    /// The server has not all secrets that its definition names.
    SecretsMissing,
    /// No worker is connected.
    NoWorker,
    /// Only the worker of its last attempt may run it, and that worker is not connected.
    PinnedWorkerAway,
    /// No connected worker offers its runtime.
    NoRuntime,
    /// No connected worker with its runtime meets its other requirements: labels, a list of workers, a protocol version.
    NoMatch,
    /// No connected worker that it may run on offers as much as it reserves.
    TooLarge,
    /// All workers that could run it are cordoned or draining.
    Cordoned,
    /// The runtime of a worker that could run it does not answer. Ranks above [`Self::Cordoned`]: an operator
    /// chose to cordon, but must learn of a broken engine.
    RuntimeUnavailable,
    /// All workers that could run it recently failed to start it.
    Excluded,
    /// As many jobs of the server run as may.
    ServerFull,
    /// A limit on jobs at once has no permit left.
    Limited,
    /// A rate allows no start now.
    RateLimited,
    /// All workers that could run it have no room.
    Busy,
    /// Workers that could run it have too little left of a resource that it reserves.
    Resources,
    /// Workers that could run it are set aside for a job that goes before it.
    SetAside,
    /// It is about to be placed.
    Soon,
    /// It is in quarantine after repeated losses.
    Quarantined,
}

impl PendingReason {
    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::Dependencies => "dependencies",
            Self::Replacing => "replacing",
            Self::Members => "members",
            Self::Paused => "paused",
            Self::SecretsMissing => "secrets_missing",
            Self::NoWorker => "no_worker",
            Self::PinnedWorkerAway => "pinned_worker_away",
            Self::NoRuntime => "no_runtime",
            Self::NoMatch => "no_match",
            Self::TooLarge => "no_worker_fits",
            Self::Cordoned => "cordoned",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Excluded => "excluded",
            Self::ServerFull => "max_running",
            Self::Limited => "limit",
            Self::RateLimited => "rate_limit",
            Self::Busy => "busy",
            Self::Resources => "resources",
            Self::SetAside => "set_aside",
            Self::Soon => "soon",
            Self::Quarantined => "quarantined",
        }
    }
}
