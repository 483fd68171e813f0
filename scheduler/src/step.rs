//! Decisions of the scheduler: changes to commit, and effects to perform after that.
//!
//! *Changes survive, effects may be lost.* A reconnect and a tick derive each effect again from state.

mod answer;
mod broken_rule;
mod close_reason;
mod closed_attempt;
mod note;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::{AttemptNo, Fence, JobId, Order, Revision, SessionId, Timestamp, Token, WorkerId};

pub use answer::{Accepted, Answer, PendingReason, Rejection};
pub use broken_rule::BrokenRule;
pub use close_reason::CloseReason;
pub use closed_attempt::ClosedAttempt;
pub use note::Note;

use crate::batches::{BatchLimits, BatchMember, NewBatch};
use crate::definition::Definition;
use crate::dependencies::DependencyRow;
use crate::details::JobDetails;
use crate::expectations::ExpectationRow;
use crate::fleet::row::WorkerRow;
use crate::hooks::HookRow;
use crate::ids::Ticket;
use crate::input::KeyHolder;
use crate::job::AttemptTimeout;
use crate::limits::RateRow;
use crate::limits::keys::JobKeys;
use crate::pauses::{PauseChange, PauseTarget};
use crate::placement::narrowing::Narrowing;
use crate::run_on::{MemberRow, ParentRow, WorkerUse};
use crate::schedules::{FireRow, ScheduleRow};
use crate::state::State;
use crate::unique::UniqueRow;

/// The result of one step.
#[derive(Debug, Default)]
pub struct Step {
    /// Changes to commit, in order.
    pub changes: Vec<Change>,
    /// Effects to perform after the commit, in order.
    pub effects: Vec<Effect>,
}

/// A change to commit. Changes of one job within a group may be folded into one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job was accepted; or created, if its batch is still [`Change::PendingBatch`].
    Added(AddedJob),
    /// A job was assigned to a worker with a new current attempt.
    Assigned(Assigned),
    /// The container of the current attempt has started.
    Started {
        /// The current attempt.
        token: Token,
        /// Wall-clock time of the start.
        at: Timestamp,
        /// The runtime's name for it, such as a container id.
        container: String,
    },
    /// The current attempt is to stop; it still exists.
    Stopping {
        /// The current attempt.
        token: Token,
        /// The cause that was recorded first.
        cause: StopCause,
        /// Wall-clock time of the request.
        at: Timestamp,
        /// The requester.
        by: String,
    },
    /// The current attempt has ended and its job waits again.
    AttemptClosed {
        /// The job that waits.
        job: JobId,
        /// The end of the attempt.
        closed: ClosedAttempt,
        /// Earliest start of the next attempt; in the future the job is scheduled, else queued.
        due_at: Timestamp,
        /// `Scheduled`, `Queued` or `Quarantined`.
        state: State,
    },
    /// A scheduled job became due.
    BecameDue {
        /// The due job.
        job: JobId,
    },
    /// An operator released a quarantined job: it is queued, and its losses are forgotten.
    QuarantineReleased {
        /// The released job.
        job: JobId,
    },
    /// The deadline by which a waiting job starts or ends as expired has changed.
    Expiry {
        /// The job.
        job: JobId,
        /// Wall-clock time of the deadline; `None` takes it away: the job waits without one, runs, or has ended.
        at: Option<Timestamp>,
    },
    /// A client changed a scheduled or queued job.
    Updated(Updated),
    /// A job waits for another one; or it has learned how this one ended.
    Dependency(DependencyRow),
    /// The jobs that this one came after have ended as required: it takes parameters from their results by the rules of its definition. Only
    /// if the definition has parameters.
    ResultsTaken {
        /// The job.
        job: JobId,
        /// Its definition.
        definition: Arc<Definition>,
    },
    /// A job waits for no others any more, because it ends.
    DependenciesDropped {
        /// The job that ends.
        job: JobId,
        /// It was skipped: the end that it requires did not come, and nothing went wrong.
        is_skipped: bool,
    },
    /// A job has ended.
    Ended(Ended),
    /// The worker of a cancelled, unconfirmed job reported that its container is gone. Nothing changes if
    /// that is known already or the job was deleted.
    ContainerGone {
        /// The job's last attempt.
        token: Token,
        /// The worker that had it.
        worker: WorkerId,
        /// Wall-clock time of the report.
        at: Timestamp,
    },
    /// An entry of a job's history; changes nothing else.
    Noted {
        /// The job that it is about.
        job: JobId,
        /// Wall-clock time of the entry.
        at: Timestamp,
        /// The entry.
        note: Note,
    },
    /// A batch was accepted; its members follow.
    BatchAdded(NewBatch),
    /// Somebody cancelled a batch: none of its members starts from now on, and those that have not ended are cancelled in this step and the next
    /// ones.
    BatchCancelled {
        /// The first member.
        first: JobId,
        /// The requester.
        by: Arc<str>,
        /// Wall-clock time of the request.
        at: Timestamp,
    },
    /// Another batch has taken the unique key of a batch that has not ended. A [`Change::BatchCancelled`] of the same step follows, unless the
    /// batch was cancelled before.
    BatchReplaced {
        /// The first member.
        first: JobId,
        /// The batch that has the key from now on.
        by: JobId,
    },
    /// The limits of a batch are these from now on.
    BatchChanged {
        /// The first member.
        first: JobId,
        /// All of its limits.
        limits: BatchLimits,
    },
    /// All members of a batch have ended.
    BatchEnded {
        /// The first member.
        first: JobId,
        /// The number of members.
        count: u32,
        /// Members that failed, expired, or were lost.
        failed: u32,
        /// How it ended: succeeded, failed or cancelled.
        state: State,
        /// Wall-clock time of the last end.
        at: Timestamp,
    },
    /// Members of a large batch are created in this group and later ones. Until [`Change::BatchCompleted`]
    /// they are invisible, no other change is about them, and a start removes them.
    PendingBatch {
        /// The first member.
        first: JobId,
        /// The last member; all numbers between belong to it.
        last: JobId,
    },
    /// All members of a large batch exist and become visible.
    BatchCompleted {
        /// The first member.
        first: JobId,
    },
    /// A request with an idempotency key was accepted: its repetitions get the same answer.
    IdempotencyKeyStored {
        /// The client's key, prefixed with its scope.
        key: Arc<str>,
        /// The request.
        holder: KeyHolder,
        /// Wall-clock time of the acceptance.
        at: Timestamp,
    },
    /// Numbers up to these were assigned in commits that this database has lost, and are skipped.
    NumbersSkipped {
        /// The last job that was assigned here.
        after: JobId,
        /// The last job number that is skipped; `after` if none is.
        job: JobId,
        /// The last fence that is skipped or was assigned here.
        fence: Fence,
        /// Wall-clock time of the discovery.
        at: Timestamp,
    },
    /// A worker is new, or its row changed.
    Worker(WorkerRow),
    /// The row of a worker whose cordon has ended by itself.
    CordonEnded {
        /// The row, which is not cordoned any more.
        row: WorkerRow,
        /// The end that was given with the cordon.
        until: Timestamp,
    },
    /// A worker was removed.
    WorkerForgotten(WorkerId),
    /// The stored state of a schedule.
    Schedule(ScheduleRow),
    /// A row of the fire ledger is new, or reaches further: its definition, schedule and first slot name it.
    Fire(FireRow),
    /// The stored state of an expectation; it tells since when the definition is stale or slow.
    Expectation(ExpectationRow),
    /// Nothing is expected under this name any more.
    ExpectationDropped {
        /// The name of the definition.
        definition: Arc<str>,
    },
    /// An event of a job has a hook: its job was made in the same step, or it was left out.
    Hook(HookRow),
    /// A job started under a rate; this is when the rate has recovered from all starts.
    RateUsed(RateRow),
    /// A unique key has another holder, or is free.
    Unique(UniqueRow),
    /// The stored row of a parent, which is new or has changed. It comes before the end of the parent.
    Parent(ParentRow),
    /// The job that is added next is a member of a parent.
    Member(MemberRow),
    /// A member has been on a worker, which its siblings may not go to any more.
    WorkerUsed(WorkerUse),
    /// Jobs and schedules were paused, or are not paused any more.
    Paused {
        /// The jobs and schedules.
        target: PauseTarget,
        /// The pause, or the cause of its end.
        pause: PauseChange,
    },
}

/// An accepted job.
#[derive(Clone, Debug, PartialEq)]
pub struct AddedJob {
    /// Its number.
    pub job: JobId,
    /// The revision of its definition.
    pub revision: Revision,
    /// `Scheduled` or `Queued`.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// Wall-clock time of the acceptance.
    pub created_at: Timestamp,
    /// Earliest start.
    pub due_at: Timestamp,
    /// Overrides its definition's timeout.
    pub timeout: Option<AttemptTimeout>,
    /// The first job of its batch, if it belongs to one.
    pub batch: Option<JobId>,
    /// The ended job that it repeats.
    pub retry_of: Option<JobId>,
    /// The name of the requester; none if nobody is known, or no request made it. A member has none: its parent has it.
    pub submitted_by: Option<Arc<str>>,
    /// The workers that it asks for; those of its parent if it is a member.
    pub narrowing: Option<Arc<Narrowing>>,
    /// Values of the keys of its definition's limits.
    pub keys: Option<Box<JobKeys>>,
    /// Data that no decision depends on.
    pub details: Option<Box<JobDetails>>,
}

/// The assignment of a job to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The new attempt.
    pub token: Token,
    /// Number of the attempt within its job.
    pub number: AttemptNo,
    /// The worker that gets it.
    pub worker: WorkerId,
    /// The session on which it is sent.
    pub session: SessionId,
    /// Wall-clock time of the assignment.
    pub at: Timestamp,
    /// Ids of the GPUs that are reserved for it.
    pub gpus: Vec<String>,
}

/// The new values of a waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The job that waits.
    pub job: JobId,
    /// `Scheduled` or `Queued`, by the new start.
    pub state: State,
    /// Earliest start.
    pub due_at: Timestamp,
    /// Higher goes first.
    pub priority: i8,
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The ended job.
    pub job: JobId,
    /// `Succeeded`, `Failed`, `Cancelled`, `Expired` or `Lost`.
    pub state: State,
    /// Wall-clock time of the end.
    pub at: Timestamp,
    /// The reason in one line; empty for success.
    pub reason: String,
    /// The end of its current attempt; absent if it had none.
    pub closed: Option<ClosedAttempt>,
    /// For a cancelled job: its container is known to be gone.
    pub confirmed: bool,
}

/// An effect to perform after the changes are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer a request.
    Reply(Ticket, Answer),
    /// Send an order to a worker.
    Send(SessionId, Order),
    /// Send a definition to a worker.
    Define(SessionId, Arc<Definition>),
    /// Send attempts to a worker; the server fills in their overrides.
    Enqueue(SessionId, Vec<Grant>),
    /// Close a session.
    Close(SessionId, CloseReason),
    /// A job has ended: wake the requests that wait for it.
    JobEnded(JobId, State),
}

/// An attempt to be sent to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The attempt's token.
    pub token: Token,
    /// Higher goes first in the worker's local queue. With ageing it is zero.
    pub priority: i8,
    /// Since when the job has been due; with ageing earlier, by its priority ([`PriorityAgeing::order_on_worker`]).
    ///
    /// [`PriorityAgeing::order_on_worker`]: crate::PriorityAgeing::order_on_worker
    pub due_at: Timestamp,
    /// The revision to run.
    pub revision: Revision,
    /// The name of its definition.
    pub name: String,
    /// The attempt's number among those of its job, from 1.
    pub number: AttemptNo,
    /// The job adds something to its definition.
    pub has_overrides: bool,
    /// Remaining run time, from the start of the container.
    pub time_left: Option<Duration>,
    /// Memory limit in bytes, if it differs from the definition's.
    pub memory_bytes: Option<u64>,
    /// Its position in its batch, if the job has one.
    pub member: Option<BatchMember>,
    /// Ids of the GPUs that are reserved for it.
    pub gpus: Vec<String>,
}
