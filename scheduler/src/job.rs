//! A job as the scheduler holds it: a few dozen bytes while it waits, and an attempt while it is on a worker.
//!
//! Environment, arguments and labels of a job are never here: the server reads them from the store when it
//! needs them.

mod attempt;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::Outcome;
use protocol::{AttemptNo, JobId, Timestamp, Token, WorkerId};

pub use crate::state::State;
pub use attempt::{Attempt, AwaitedReport, Presence, Progress, Run, StartState};

use crate::ids::DefinitionNo;
use crate::limits::keys::KeySetNo;
use crate::queue::{LaneKey, PriorityAgeing, QueueKey};
use crate::retry::{self, RetryBudget};
use crate::run_on::RunOnRole;

/// A job that has not ended.
#[derive(Debug)]
pub struct Job {
    /// Its definition.
    pub definition: DefinitionNo,
    /// Higher goes first.
    pub priority: i8,
    /// It has environment, arguments, input or parameters of its own, or comes after other jobs: its worker gets these from the store.
    pub has_overrides: bool,
    /// Earliest start.
    pub due_at: Timestamp,
    /// Its state with the data of that state.
    pub live_state: LiveState,
    /// Facts that few jobs have; absent means defaults.
    pub extras: Option<Box<JobExtras>>,
}

/// The state of a job that has not ended, with the data of that state.
#[derive(Debug)]
pub enum LiveState {
    /// Waits for `due_at`.
    Scheduled,
    /// Waits in this lane.
    Queued(LaneKey),
    /// Has a current attempt on a worker.
    Held(Box<Attempt>),
    /// Waits for an operator.
    Quarantined,
    /// Is due, and its members run in its place.
    Parent {
        /// A container of a member has started.
        has_started: bool,
    },
}

/// How long an attempt may run, where a job says so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptTimeout {
    /// As long as it likes.
    Unlimited,
    /// At most this long.
    After(Duration),
}

impl AttemptTimeout {
    /// The longest run; `None` if it is unlimited.
    #[must_use]
    pub const fn limit(self) -> Option<Duration> {
        match self {
            Self::Unlimited => None,
            Self::After(limit) => Some(limit),
        }
    }
}

/// Facts about a job that few jobs have: its own timeout, its past attempts, and more. Most jobs wait, run once and end without them.
#[derive(Clone, Debug, Default)]
pub struct JobExtras {
    /// Overrides its definition's timeout.
    pub timeout: Option<AttemptTimeout>,
    /// Number of attempts so far.
    pub attempts: AttemptNo,
    /// Attempts that used the job's budget.
    pub job_failures: u32,
    /// Those of them that were killed for their memory limit.
    pub oom_kills: u32,
    /// Times of the losses within the last day.
    pub losses: Vec<Timestamp>,
    /// The last attempt that was not released: its worker, and the kind of its end.
    pub last: Option<LastPlacement>,
    /// Values of the keys of its definition's limits.
    pub key_set: KeySetNo,
    /// Lost attempts with their workers, whose containers may still exist.
    pub unconfirmed: Vec<(Token, WorkerId)>,
    /// Its place in a chain of hooks; zero if no hook made it.
    pub hook_depth: u8,
    /// A container of it has started. Kept only if its definition has a hook for that.
    pub has_started: bool,
    /// Wall-clock time at which it expires, unless it has started before.
    pub expires_at: Option<Timestamp>,
    /// Its part in a set of jobs on several workers.
    pub role: RunOnRole,
}

/// The worker of the last attempt, and the kind of its end. They decide where the next one may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPlacement {
    /// The worker of the last attempt.
    pub worker: WorkerId,
    /// It ended by an infrastructure failure, and not by a job failure or by an order.
    pub infrastructure_failure: bool,
}

impl LastPlacement {
    /// The placement to remember after this outcome; none if the attempt was released.
    #[must_use]
    pub fn after(worker: WorkerId, outcome: Outcome) -> Option<Self> {
        let infrastructure_failure = retry::budget(outcome) == RetryBudget::Infrastructure;
        (outcome != Outcome::Released).then_some(Self { worker, infrastructure_failure })
    }
}

impl Job {
    /// It is in the queue, or has left it and has not ended: neither due later nor quarantined.
    #[must_use]
    pub const fn is_queued_or_held(&self) -> bool {
        matches!(self.live_state, LiveState::Queued(_) | LiveState::Held(_) | LiveState::Parent { .. })
    }

    /// The state in the store and the API.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.live_state {
            LiveState::Scheduled => State::Scheduled,
            LiveState::Queued(_) => State::Queued,
            LiveState::Held(attempt) if attempt.has_started() => State::Running,
            LiveState::Held(_) => State::Assigned,
            LiveState::Quarantined => State::Quarantined,
            LiveState::Parent { has_started: false } => State::Queued,
            LiveState::Parent { has_started: true } => State::Running,
        }
    }

    /// Its part in a set of jobs on several workers.
    #[must_use]
    pub fn role(&self) -> RunOnRole {
        self.extras.as_ref().map_or(RunOnRole::None, |extras| extras.role)
    }

    /// Its current attempt, if it has one.
    #[must_use]
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.live_state {
            LiveState::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Its current attempt, if it has one.
    pub fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        match &mut self.live_state {
            LiveState::Held(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// Its position in its lane while it waits.
    #[must_use]
    pub fn queue_key(&self, ageing: PriorityAgeing, job: JobId) -> QueueKey {
        let goes_first = matches!(self.live_state, LiveState::Queued(lane) if lane.goes_first());
        QueueKey::new(ageing, self.priority, goes_first, self.due_at, job)
    }

    /// The facts that few jobs have, created with defaults if it has none.
    pub fn extras_mut(&mut self) -> &mut JobExtras {
        self.extras.get_or_insert_default()
    }

    /// A lost attempt may still have a container.
    #[must_use]
    pub fn has_unconfirmed_attempts(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| !extras.unconfirmed.is_empty())
    }

    /// Deadline of its present wait, if it has one.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.extras.as_ref().and_then(|extras| extras.expires_at)
    }

    /// It has waited for too long.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The last placement, if there was one.
    #[must_use]
    pub fn last_placement(&self) -> Option<LastPlacement> {
        self.extras.as_ref().and_then(|extras| extras.last)
    }
}
