//! The states of a job.

/// The states of a job (docs/design/scheduling.md, Q1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waits for its due time.
    Scheduled,
    /// Waits for a slot.
    Queued,
    /// On a worker: in its backlog, pulling the image, or starting.
    Assigned,
    /// Its container has started.
    Running,
    /// Waits for an operator to release or cancel it.
    Quarantined,
    /// Ended with exit code 0.
    Succeeded,
    /// Ended otherwise without a further attempt.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Ended because it could not start in time.
    Expired,
    /// Ended because its worker was lost.
    Lost,
}

impl State {
    /// All states, in the order of a job's life.
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

    /// The states of jobs that have ended for good.
    pub const ENDED: [Self; 5] = [Self::Succeeded, Self::Failed, Self::Cancelled, Self::Expired, Self::Lost];

    /// Name in the store and the API.
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

    /// The job has ended for good.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired | Self::Lost)
    }

    /// The job has ended without success, and nobody asked for that.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Expired | Self::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn the_list_of_ended_states_is_complete() {
        assert!(State::ALL.into_iter().filter(|state| state.has_ended()).eq(State::ENDED));
    }
}
