//! Everything that the scheduler can decide: what must become durable, and what must then be done.
//!
//! *Changes survive, effects may be lost.* Every effect is derivable again from state; a reconnect and a tick do so.

mod answer;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::{Outcome, OutputLengths, ReleaseCause};
use protocol::{
    AttemptNo, Fence, Incarnation, JobId, Order, Revision, SessionId, Timestamp, Token, Uptime, WorkerId,
};

pub use answer::{Accepted, Answer, PendingReason, Rejection};

use crate::definition::Definition;
use crate::input::{Details, KeyHolder, Ticket};
use crate::job::State;

/// One decision.
#[derive(Debug, Default)]
pub struct Step {
    /// Rows that must become durable, in order.
    pub changes: Vec<Change>,
    /// What must be done after that, in order.
    pub effects: Vec<Effect>,
}

/// A row that must become durable. Those of one job within a group may be folded into one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job was accepted; or made, if its batch is still [`Change::Forming`].
    Added(AddedJob),
    /// A job was handed to a worker: a new attempt is its current one.
    Assigned(Assigned),
    /// The container of the current attempt has started.
    Started {
        /// The current attempt.
        token: Token,
        /// When.
        at: Timestamp,
        /// The runtime's own name for it.
        container: String,
    },
    /// Somebody or something wants the current attempt to stop; it is still there.
    Stopping {
        /// The current attempt.
        token: Token,
        /// Why.
        cause: StopCause,
        /// When this was recorded.
        at: Timestamp,
        /// On whose request.
        by: String,
    },
    /// The current attempt is over and its job waits again.
    Waiting {
        /// Which job.
        job: JobId,
        /// How the attempt ended.
        closed: ClosedAttempt,
        /// From when it may run: in the future the job is scheduled, else queued.
        due_at: Timestamp,
        /// `Scheduled`, `Queued` or `Quarantined`.
        state: State,
    },
    /// A scheduled job became due.
    Due {
        /// Which job.
        job: JobId,
    },
    /// A person let a quarantined job go on: it is queued, and its losses are forgotten.
    Freed {
        /// Which job.
        job: JobId,
    },
    /// A job is over, for good.
    Ended(Ended),
    /// The worker of a job that ended as cancelled and unconfirmed has told that its container is gone: it is confirmed, and noted. Where
    /// that is known already, or the job is not kept any more, nothing changes.
    Confirmed {
        /// Its last attempt.
        token: Token,
        /// Who had it.
        worker: WorkerId,
        /// When it was told.
        at: Timestamp,
    },
    /// Something that a person wants to know about a job; changes nothing.
    Noted {
        /// Which job.
        job: JobId,
        /// When.
        at: Timestamp,
        /// What.
        note: Note,
    },
    /// The members of a large batch are being made, in this group and later ones. Until it is [`Change::Formed`] nobody sees them, no
    /// other change is about them, and if the next start finds them so they are removed: nothing was promised.
    Forming {
        /// The first one.
        first: JobId,
        /// The last one; all between belong to it.
        last: JobId,
    },
    /// All members of a large batch are made: from here on they are jobs like all others.
    Formed {
        /// The first one.
        first: JobId,
    },
    /// A request with an idempotency key was accepted.
    Keyed {
        /// As the client wrote it, with its scope in front.
        key: Arc<str>,
        /// What it stands for.
        holder: KeyHolder,
        /// When.
        at: Timestamp,
    },
    /// Numbers up to these were given by another life of this database, and are left out.
    Skipped {
        /// The last job that was given here.
        after: JobId,
        /// The last number of a job that is left out; `after` if none is.
        job: JobId,
        /// The last fence that is left out, or was given here.
        fence: Fence,
        /// When that was found out.
        at: Timestamp,
    },
    /// A worker is new, or what is kept about it changed.
    Worker(WorkerRow),
    /// A worker was dropped from the list.
    WorkerForgotten(WorkerId),
}

/// A job was accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct AddedJob {
    /// Its number.
    pub job: JobId,
    /// Of which definition.
    pub revision: Revision,
    /// `Scheduled` or `Queued`.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// From when it may run.
    pub due_at: Timestamp,
    /// How long one attempt may run, if not as its definition says; the inner `None` is "for ever".
    pub timeout: Option<Option<Duration>>,
    /// The first job of the request that it came with, if that was a batch.
    pub batch: Option<JobId>,
    /// The ended job that it tries again.
    pub retry_of: Option<JobId>,
    /// What no decision depends on.
    pub details: Option<Box<Details>>,
}

/// A job was handed to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The new attempt.
    pub token: Token,
    /// Which try of its job it is.
    pub number: AttemptNo,
    /// Who has it.
    pub worker: WorkerId,
    /// On which session it was handed over.
    pub session: SessionId,
    /// When.
    pub at: Timestamp,
}

/// A job is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Which.
    pub job: JobId,
    /// `Succeeded`, `Failed`, `Cancelled`, `Expired` or `Lost`.
    pub state: State,
    /// When.
    pub at: Timestamp,
    /// In one line: why. Empty for success.
    pub reason: String,
    /// The end of its current attempt; absent if it had none.
    pub closed: Option<ClosedAttempt>,
    /// For a cancelled job: whether its container is known to be gone.
    pub confirmed: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedAttempt {
    /// Which.
    pub token: Token,
    /// How.
    pub outcome: Outcome,
    /// The program's exit code, if it ran.
    pub exit_code: Option<i32>,
    /// For people, in one line.
    pub message: String,
    /// When its container started, if it did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How much it wrote.
    pub output: OutputLengths,
    /// What it left as its result: JSON.
    pub result: Option<String>,
    /// For a released attempt: why.
    pub released: Option<ReleaseCause>,
}

/// Something that a person wants to know about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A cancel was asked for.
    CancelRequested {
        /// By whom.
        by: String,
    },
    /// A person let it go on.
    Freed {
        /// Who.
        by: String,
    },
    /// The worker that was out of reach when an attempt was given up has told that its container is gone. If the job was cancelled and this
    /// was the last one, that confirms the cancel.
    Confirmed {
        /// Which attempt.
        token: Token,
        /// Who.
        worker: WorkerId,
    },
    /// A report of an attempt that is not current came in. It was not believed.
    LateReport {
        /// Which attempt.
        token: Token,
        /// Who said it.
        worker: WorkerId,
        /// What it said.
        said: String,
    },
    /// An attempt's worker fell silent.
    Unreachable {
        /// Which attempt.
        token: Token,
        /// Who.
        worker: WorkerId,
    },
    /// The silent worker is back and keeps its attempt.
    Revived {
        /// Which attempt.
        token: Token,
        /// Who.
        worker: WorkerId,
    },
}

/// What is kept about a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its lasting identity.
    pub worker: WorkerId,
    /// What people call it.
    pub name: Arc<str>,
    /// The SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// When it first joined.
    pub joined_at: Timestamp,
    /// When it was last heard of; written once a minute.
    pub seen_at: Timestamp,
    /// Whether it takes nothing new.
    pub cordoned: bool,
    /// Its slots, if an operator set them.
    pub slots: Option<u32>,
    /// Whether it is to finish what it has and leave, or has left so.
    pub drain: Option<Drain>,
    /// Labels that an operator laid over its own, ordered by name.
    pub labels: Vec<(String, String)>,
    /// The process that was let in last; absent if that was before anybody kept it.
    pub process: Option<Process>,
}

/// A process of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which start of the worker it is, as its state directory counts them.
    pub incarnation: Incarnation,
    /// Drawn when it began: no other process has it, and no copy of the state directory brings it along.
    pub number: u64,
}

impl Process {
    /// No process: two copies were heard, and neither is let in. No start comes after it.
    pub const NONE: Self = Self { incarnation: Incarnation(u64::MAX), number: 0 };
}

/// An order to finish what a worker has, and to leave. Whoever has it is cordoned too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The process that is to leave; absent: whichever connects next.
    pub process: Option<Incarnation>,
    /// When what still runs is stopped.
    pub deadline: Option<Timestamp>,
}

/// What must be done once the changes are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer a request.
    Reply(Ticket, Answer),
    /// Tell a worker.
    Send(SessionId, Order),
    /// Tell a worker what to run for a revision.
    Define(SessionId, Arc<Definition>),
    /// Hand attempts to a worker; the body fills in what they add to their definitions.
    Enqueue(SessionId, Vec<Grant>),
    /// Close a session.
    Close(SessionId, CloseReason),
    /// A job is over: wake those who wait for it.
    JobEnded(JobId, State),
}

/// An attempt to be handed to a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The attempt.
    pub token: Token,
    /// Higher goes first.
    pub priority: i8,
    /// Since when it has been due.
    pub due_at: Timestamp,
    /// What to run.
    pub revision: Revision,
    /// Whether the job adds something to it.
    pub has_body: bool,
    /// How long it may run.
    pub time_left: Option<Duration>,
    /// How much memory it may have instead of what its definition says.
    pub memory_bytes: Option<u64>,
}

/// Why the server closes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The Hello was refused; the refusal has been sent.
    Refused,
    /// A newer connection of the same worker has taken over.
    Replaced,
    /// The worker said something that makes no sense here.
    Protocol,
    /// It was silent for longer than its lease.
    Silent,
}

/// When the scheduler wants to be called again, at the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeAt {
    /// By the clock on the wall.
    pub utc: Option<Timestamp>,
    /// By the monotonic one.
    pub up: Option<Uptime>,
}
