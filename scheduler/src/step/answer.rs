//! What whoever asked for something is told.

use protocol::{JobId, Timestamp};

use crate::input::KeyHolder;
use crate::job::State;

/// What a request is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The jobs were accepted; their ids are consecutive.
    Accepted(Accepted),
    /// This very request was accepted before.
    Replayed(KeyHolder),
    /// The job is cancelled, or will be as soon as its container is gone.
    Cancelling(State),
    /// What an operator asked for is done.
    Done,
    /// It is not.
    Rejected(Rejection),
}

/// Accepted jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The first one's number; the others follow.
    pub first: JobId,
    /// How many.
    pub count: u32,
    /// When.
    pub created_at: Timestamp,
    /// The state of the first one as of this decision.
    pub state: State,
    /// Why the first one waits, if it does.
    pub pending: Option<PendingReason>,
}

/// The asker is wrong, or it is not the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No such definition (any more).
    UnknownDefinition,
    /// The definition is not enabled.
    Disabled,
    /// The key stands for another request.
    KeyMismatch(KeyHolder),
    /// The reading of the archive is too old to be sure about the key: read again.
    KeyReadingTooOld,
    /// No connected worker could run it, and that was asked for.
    NoWorker(PendingReason),
    /// Too many large batches are being made: try again.
    Crowded,
    /// With these there would be more jobs that have not ended than there may be: try again when some have.
    QueueFull {
        /// How many there may be.
        jobs_max: usize,
        /// How many were asked for: if there may never be so many, trying again is in vain.
        asked: usize,
    },
    /// The job is not among those that have not ended: ask the archive.
    NotLive,
    /// The job is neither held back nor waiting for a worker that does not answer; its state.
    NothingToRelease(State),
    /// No such worker.
    UnknownWorker,
    /// The worker is connected.
    WorkerConnected,
    /// The store has refused what this request leads to, twice in a row. Never said by the scheduler: its body remembers.
    RefusedBefore,
    /// More labels than a worker may have.
    TooManyLabels,
    /// The worker is not connected, and what was asked for cannot wait for it.
    WorkerAway,
    /// The worker has no such attempt that was never given here.
    NotUnmanaged,
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PendingReason {
    /// It is not due yet.
    NotDue,
    /// No worker is connected.
    NoWorker,
    /// Only the worker that had its last attempt may run it, and that one is not connected.
    PinnedWorkerAway,
    /// Workers are connected, but none offers its runtime.
    NoRuntime,
    /// Those that could run it are cordoned or draining.
    Cordoned,
    /// Those that could run it have recently failed to start it.
    Excluded,
    /// All slots and backlogs of those that could run it are taken.
    Busy,
    /// It is about to be placed.
    Soon,
    /// It is held because it kept losing its workers.
    Quarantined,
}

impl PendingReason {
    /// As it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::NoWorker => "no_worker",
            Self::PinnedWorkerAway => "pinned_worker_away",
            Self::NoRuntime => "no_runtime",
            Self::Cordoned => "cordoned",
            Self::Excluded => "excluded",
            Self::Busy => "busy",
            Self::Soon => "soon",
            Self::Quarantined => "quarantined",
        }
    }
}
