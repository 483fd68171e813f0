//! A job as the scheduler holds it: a few dozen bytes while it waits, and an attempt while it is on a worker.
//!
//! What a job adds to its definition (environment, arguments, labels) is never here: bodies read it from the store when they need it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{AttemptNo, Fence, JobId, Nonce, SessionId, Timestamp, Token, Uptime, WorkerId};

use crate::definitions::DefinitionNo;
use crate::ready::{LaneKey, Place};
use crate::retry::{self, Budget};

/// The states of a job (DESIGN.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waits for an instant.
    Scheduled,
    /// Waits for a slot or a limit.
    Queued,
    /// On a worker: in its backlog, pulling the image, or starting.
    Assigned,
    /// Its container has started.
    Running,
    /// Held until a person releases or cancels it.
    Quarantined,
    /// Ended with exit code 0.
    Succeeded,
    /// Ended otherwise, and no attempt is left.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Ended because it could not start in time.
    Expired,
    /// Ended because its worker was lost.
    Lost,
}

impl State {
    /// Every state, in the order of a job's life.
    pub const ALL: [Self; 10] = [
        Self::Scheduled,
        Self::Queued,
        Self::Assigned,
        Self::Running,
        Self::Quarantined,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
        Self::Lost,
    ];

    /// As it is stored, shown and asked for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Queued => "queued",
            Self::Assigned => "assigned",
            Self::Running => "running",
            Self::Quarantined => "quarantined",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Lost => "lost",
        }
    }

    /// Whether the job is over, for good.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired | Self::Lost)
    }
}

/// A job that has not ended.
#[derive(Debug)]
pub struct Job {
    /// Of which definition.
    pub definition: DefinitionNo,
    /// Higher goes first.
    pub priority: i8,
    /// Whether it adds something to its definition.
    pub has_body: bool,
    /// From when it may run.
    pub due_at: Timestamp,
    /// Where it stands.
    pub standing: Standing,
    /// What most jobs do not have: absent means all defaults.
    pub past: Option<Box<Past>>,
}

/// Where a job stands, with what belongs to that state only.
#[derive(Debug)]
pub enum Standing {
    /// Waits for `due_at`.
    Scheduled,
    /// Waits in this lane.
    Queued(LaneKey),
    /// On a worker, started or not.
    Held(Box<Attempt>),
    /// Held back until a person decides.
    Quarantined,
}

/// What a job went through, and what makes it special.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Instead of its definition's timeout; the inner `None` is "for ever".
    pub timeout: Option<Option<Duration>>,
    /// Attempts so far.
    pub attempts: AttemptNo,
    /// Those that used the job's own budget.
    pub own_failures: u32,
    /// Those of them that were killed for their memory limit.
    pub oom_kills: u32,
    /// When it was failed by the platform, within the last day.
    pub losses: Vec<Timestamp>,
    /// Where the last attempt was that its worker did not give back.
    pub last: Option<Stay>,
    /// Attempts that were given up, each with who had it, as long as nobody knows whether its container is gone.
    pub in_doubt: Vec<(Token, WorkerId)>,
}

/// Where a job was, as far as that decides where it goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// On which worker.
    pub worker: WorkerId,
    /// Whether it ended by a failure of the platform, and not by one of the job's own or by somebody's order.
    pub failed_by_platform: bool,
}

impl Stay {
    /// What is remembered of an attempt that ended like this: nothing, if it was given back unstarted.
    #[must_use]
    pub fn after(worker: WorkerId, outcome: Outcome) -> Option<Self> {
        let failed_by_platform = retry::budget(outcome) == Budget::Platform;
        (outcome != Outcome::Released).then_some(Self { worker, failed_by_platform })
    }
}

/// The current attempt of a job.
#[derive(Debug)]
pub struct Attempt {
    /// Its fence.
    pub fence: Fence,
    /// Drawn with it.
    pub nonce: Nonce,
    /// Which try of its job it is.
    pub number: AttemptNo,
    /// Who has it.
    pub worker: WorkerId,
    /// When it was handed over.
    pub assigned_at: Timestamp,
    /// When it was handed over, last, by the monotonic clock.
    pub assigned_up: Uptime,
    /// When its container started, if it has.
    pub started_at: Option<Timestamp>,
    /// Why it is being stopped, if it is: the cause recorded first.
    pub stopping: Option<StopCause>,
    /// The session on which it was handed over last, if that was within this life of the server.
    pub session: Option<SessionId>,
    /// Whether it has been asked back.
    pub recalled: bool,
    /// Whether it went into a backlog rather than a free slot.
    pub prefetched: bool,
    /// Whether its container may exist as far as we know: from the beginning, unless its worker asks before it starts, and has not yet.
    pub may_run: bool,
    /// Whether its worker came back without it while its runtime was silent: nothing could be concluded.
    pub unsettled: bool,
    /// Its worker has said that it is being started, or it was given before the backup that this store was restored from: where it is
    /// gone from there, this token is not handed out again.
    pub begun: bool,
    /// When it will have run for too long, if its container has started and it has a timeout.
    pub overrun_at: Option<Uptime>,
    /// When it will be given up, if its worker is unreachable.
    pub loss_at: Option<Uptime>,
}

impl Job {
    /// As it is stored and shown.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.standing {
            Standing::Scheduled => State::Scheduled,
            Standing::Queued(_) => State::Queued,
            Standing::Held(attempt) if attempt.started_at.is_some() => State::Running,
            Standing::Held(_) => State::Assigned,
            Standing::Quarantined => State::Quarantined,
        }
    }

    /// Its current attempt, if it has one.
    #[must_use]
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.standing {
            Standing::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Its current attempt, if it has one.
    pub fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match &mut self.standing {
            Standing::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Where it stands in its lane while it waits.
    #[must_use]
    pub fn place(&self, job: JobId) -> Place {
        let pinned = matches!(self.standing, Standing::Queued(LaneKey::Pinned(..)));
        Place::new(self.priority, pinned, self.due_at, job)
    }

    /// What makes it special, made if it was not.
    pub fn past_mut(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    /// Whether an attempt of it was given up, and nobody knows yet whether the container is gone.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.past.as_ref().is_some_and(|past| !past.in_doubt.is_empty())
    }

    /// Where it was before, if its worker did not give it back.
    #[must_use]
    pub fn last_stay(&self) -> Option<Stay> {
        self.past.as_ref().and_then(|past| past.last)
    }
}

impl Attempt {
    /// Its token.
    #[must_use]
    pub const fn token(&self, job: JobId) -> Token {
        Token { job, fence: self.fence, nonce: self.nonce }
    }

    /// Whether its container runs, and nothing stops it in time if its worker does not: so it is behind a start of the server, until
    /// the worker has said for how long it has been running.
    #[must_use]
    pub const fn is_unwatched(&self) -> bool {
        self.started_at.is_some() && self.overrun_at.is_none() && self.stopping.is_none()
    }

    /// Whether this token is this attempt's, and this worker its holder.
    #[must_use]
    pub fn is(&self, token: Token, worker: WorkerId) -> bool {
        self.fence == token.fence && self.nonce == token.nonce && self.worker == worker
    }
}
