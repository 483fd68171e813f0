//! What a start hands to the scheduler: the jobs that have not ended, as the store holds them.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::{AttemptNo, JobId, Revision, SessionId, Timestamp, Token, WorkerId};

use crate::job::{State, Stay};

/// A job that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveJob {
    /// Its number.
    pub job: JobId,
    /// Of which definition.
    pub revision: Revision,
    /// Where it stands.
    pub state: State,
    /// Higher goes first.
    pub priority: i8,
    /// From when it may run.
    pub due_at: Timestamp,
    /// Instead of its definition's timeout.
    pub timeout: Option<Option<Duration>>,
    /// Whether it adds something to its definition.
    pub has_body: bool,
    /// Attempts so far that used the job's own budget.
    pub own_failures: u32,
    /// Those of them that were killed for their memory limit.
    pub oom_kills: u32,
    /// When attempts were lost by the platform, within the last day.
    pub losses: Vec<Timestamp>,
    /// Attempts so far.
    pub attempts: AttemptNo,
    /// Where the last attempt was that is over and was not given back.
    pub last: Option<Stay>,
    /// Attempts that were lost, each with who had it, oldest first: without those whose containers are known to be gone.
    pub lost: Vec<(Token, WorkerId)>,
    /// Its current attempt, if it has one.
    pub attempt: Option<LiveAttempt>,
}

/// An attempt of a job that has ended as cancelled without anybody knowing whether its container is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Which.
    pub token: Token,
    /// Who had it.
    pub worker: WorkerId,
    /// Of which definition its job is.
    pub revision: Revision,
}

/// The current attempt of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveAttempt {
    /// Which.
    pub token: Token,
    /// Who has it.
    pub worker: WorkerId,
    /// On which session it was handed over.
    pub session: SessionId,
    /// When.
    pub assigned_at: Timestamp,
    /// When its container started, if it has.
    pub started_at: Option<Timestamp>,
    /// Why it is being stopped, if it is.
    pub stopping: Option<StopCause>,
    /// It was given before the backup that this store was restored from: it may have run and been forgotten since, and nobody here knows.
    pub begun: bool,
}
