//! A job as the scheduler holds it, its states, and the only function that moves it.

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
