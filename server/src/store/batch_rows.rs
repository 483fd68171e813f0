//! Batches as the store returns them.

use protocol::report::Outcome;
use protocol::{JobId, Timestamp};
use scheduler::job::State;
use scheduler::limits::rules::OnDuplicate;

use super::JobRow;

/// A batch, with how many members are in each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// The first member, whose number is that of the batch.
    pub first: JobId,
    /// Its name.
    pub name: Option<String>,
    /// The definition of the first member, or of another one if that is not kept any more.
    pub definition: Option<String>,
    /// The last member has another definition. Those between are not looked at.
    pub definitions_differ: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// The name of the requester, if it is known: that of its members.
    pub submitted_by: Option<String>,
    /// The number of members.
    pub count: u32,
    /// After this many failed members, those that have not started are cancelled.
    pub max_failures: Option<u32>,
    /// Members that may be on workers at once.
    pub concurrency: Option<u32>,
    /// The batch whose members it repeats, if that is kept.
    pub retry_of: Option<JobId>,
    /// The latest batch that repeats members of this one.
    pub retried_as: Option<JobId>,
    /// The first requester of a cancel of the whole batch. Members that had not ended are cancelled.
    pub cancelled_by: Option<String>,
    /// When that was.
    pub cancelled_at: Option<Timestamp>,
    /// Its unique key. It has that until it ends, unless [`Self::replaced_by`] has taken it.
    pub unique_key: Option<String>,
    /// The answer to a request whose key is taken, as the request for this batch chose it; present with the key.
    pub on_duplicate: Option<OnDuplicate>,
    /// The batch that took its unique key before it ended.
    pub replaced_by: Option<JobId>,
    /// When the last member ended.
    pub ended_at: Option<Timestamp>,
    /// Its state, which follows from those of the members.
    pub state: BatchState,
    /// Members that retention has deleted.
    pub removed: u32,
    /// Cancelled members that were skipped: the end of another job that they required did not come, and nothing went wrong.
    pub skipped: u32,
    /// Members by state, with those that were deleted.
    pub counts: BatchCounts,
}

impl BatchRow {
    /// True once enough members have failed: those that had not started were cancelled.
    #[must_use]
    pub fn has_reached_max_failures(&self) -> bool {
        self.max_failures.is_some_and(|max| self.counts.failures() >= max)
    }
}

/// Members by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the states of a job")]
pub struct BatchCounts {
    pub scheduled: u32,
    pub queued: u32,
    pub assigned: u32,
    pub running: u32,
    pub quarantined: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub expired: u32,
    pub lost: u32,
}

impl BatchCounts {
    /// Members that have not ended.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.scheduled + self.queued + self.assigned + self.running + self.quarantined
    }

    /// Members that failed, expired, or were lost.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failed + self.expired + self.lost
    }
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// No member has been assigned.
    Waiting,
    /// Some members have been assigned or have ended, and not all have ended.
    Running,
    /// All members succeeded or were skipped.
    Succeeded,
    /// All members have ended, and some failed, expired, or were lost.
    Failed,
    /// All members have ended; none failed, and some were cancelled.
    Cancelled,
}

impl BatchState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of a job that stands for it, also where jobs come after the batch. [`Self::Waiting`] has `Queued`.
    #[must_use]
    pub const fn as_job(self) -> State {
        match self {
            Self::Waiting => State::Queued,
            Self::Running => State::Running,
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Cancelled => State::Cancelled,
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A filter for lists of batches. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct BatchFilter {
    /// With this name; `*` stands for any text.
    pub name: Option<String>,
    /// In one of these states; empty: any.
    pub states: Vec<BatchState>,
    /// Made by the holder of this token, or by this user. A batch has the requester of any of its members, which is the same for all.
    pub submitted_by: Option<String>,
    /// With this unique key.
    pub unique_key: Option<String>,
    /// With a member that has this label.
    pub label: Option<(String, String)>,
    /// With a number below this one (the cursor).
    pub before: Option<JobId>,
    /// At most this many.
    pub limit: usize,
}

/// The members of a batch that failed, expired or were lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchFailures {
    /// The first of them, in the order of their numbers, without labels.
    pub first: Vec<JobRow>,
    /// All of them by the outcome of their last attempt, most first. Those that no worker had, and those that retention has deleted, are left
    /// out.
    pub outcomes: Vec<(Outcome, u32)>,
}
