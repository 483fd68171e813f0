//! The operations.

use scheduler::job::State as JobState;

/// An operation on jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Cancel,
    Retry,
    Release,
}

impl Verb {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Release => "release",
        }
    }

    /// The states of the jobs that are selected if the filter names no state.
    pub(super) const fn states(self) -> &'static [JobState] {
        match self {
            Self::Cancel => &[
                JobState::Scheduled,
                JobState::Queued,
                JobState::Assigned,
                JobState::Running,
                JobState::Quarantined,
            ],
            Self::Retry => &[JobState::Failed, JobState::Expired, JobState::Lost],
            Self::Release => &[JobState::Quarantined],
        }
    }
}
