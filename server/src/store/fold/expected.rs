//! The state that a job's row must have before a change.

use protocol::{JobId, Token};
use scheduler::job::State;
use scheduler::step::{Change, Ended};

/// The state of a row that a write expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Expected {
    /// Nothing: the job is new.
    Absent,
    /// The job waits for its time.
    Scheduled,
    /// The job waits for a worker.
    Queued,
    /// Scheduled or queued.
    Waiting,
    /// Held back.
    Quarantined,
    /// Without a current attempt: scheduled, queued or quarantined.
    Idle,
    /// Assigned to this attempt, whose container has not started.
    Unstarted(Token),
    /// Assigned to this attempt, or running it.
    Held(Token),
}

impl Expected {
    /// True if a row with this state and current attempt is as expected.
    pub(in crate::store) fn accepts(self, state: State, current: Option<Token>) -> bool {
        match self {
            Self::Absent => false,
            Self::Scheduled => state == State::Scheduled,
            Self::Queued => state == State::Queued,
            Self::Waiting => matches!(state, State::Scheduled | State::Queued),
            Self::Quarantined => state == State::Quarantined,
            Self::Idle => matches!(state, State::Scheduled | State::Queued | State::Quarantined),
            Self::Unstarted(token) => state == State::Assigned && current == Some(token),
            Self::Held(token) => matches!(state, State::Assigned | State::Running) && current == Some(token),
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("no such job"),
            Self::Scheduled => f.write_str("scheduled"),
            Self::Queued => f.write_str("queued"),
            Self::Waiting => f.write_str("scheduled or queued"),
            Self::Quarantined => f.write_str("quarantined"),
            Self::Idle => f.write_str("no current attempt"),
            Self::Unstarted(token) => write!(f, "assigned to {token}"),
            Self::Held(token) => write!(f, "assigned to or running {token}"),
        }
    }
}

/// The job that a change is about, and what its row must be before; nothing if the change is not about a row of a job.
pub(in crate::store) fn expectation(change: &Change) -> Option<(JobId, Expected)> {
    Some(match change {
        Change::Added(added) => (added.job, Expected::Absent),
        Change::Assigned(assigned) => (assigned.token.job, Expected::Queued),
        Change::Started { token, .. } => (token.job, Expected::Unstarted(*token)),
        Change::Stopping { token, .. } => (token.job, Expected::Held(*token)),
        Change::AttemptClosed { job, closed, .. } => (*job, Expected::Held(closed.token)),
        Change::BecameDue { job } => (*job, Expected::Scheduled),
        Change::QuarantineReleased { job } => (*job, Expected::Quarantined),
        Change::Updated(updated) => (updated.job, Expected::Waiting),
        Change::Ended(Ended { job, closed: Some(closed), .. }) => (*job, Expected::Held(closed.token)),
        Change::Ended(Ended { job, closed: None, .. }) => (*job, Expected::Idle),
        Change::ContainerGone { .. }
        | Change::Expiry { .. }
        | Change::Hook(_)
        | Change::Dependency(_)
        | Change::DependenciesDropped { .. }
        | Change::ResultsTaken { .. }
        | Change::Noted { .. }
        | Change::IdempotencyKeyStored { .. }
        | Change::NumbersSkipped { .. }
        | Change::BatchAdded(_)
        | Change::BatchCancelled { .. }
        | Change::BatchReplaced { .. }
        | Change::BatchChanged { .. }
        | Change::BatchEnded { .. }
        | Change::PendingBatch { .. }
        | Change::BatchCompleted { .. }
        | Change::Worker(_)
        | Change::CordonEnded { .. }
        | Change::WorkerForgotten(_)
        | Change::Schedule(_)
        | Change::Fire(_)
        | Change::Expectation(_)
        | Change::ExpectationDropped { .. }
        | Change::Paused { .. }
        | Change::Unique(_)
        | Change::Parent(_)
        | Change::Member(_)
        | Change::WorkerUsed(_)
        | Change::RateUsed(_) => return None,
    })
}
