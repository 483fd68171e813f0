//! The occasions on which a target is told about a definition.

use scheduler::job::State;

/// An occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occasion {
    /// A job has failed for good, or has expired.
    Failed,
    /// A job has succeeded.
    Succeeded,
    /// A job has succeeded, the first one since another occasion but a quarantine.
    Recovered,
    /// A job has ended because its worker was lost.
    Lost,
    /// A job waits for an operator after too many losses.
    Quarantined,
    /// A job runs for longer than `expect.max_duration`.
    Late,
    /// No job has succeeded for longer than `expect.success_within`.
    Stale,
    /// All members of a batch have ended, and some failed, expired, or were lost.
    BatchFailed,
    /// All members of a batch have succeeded or were skipped.
    BatchSucceeded,
    /// All members of a batch have ended, some were cancelled, and none failed, expired, or was lost.
    BatchCancelled,
}

impl Occasion {
    /// Every occasion.
    pub const ALL: [Self; 10] = [
        Self::Failed,
        Self::Succeeded,
        Self::Recovered,
        Self::Lost,
        Self::Quarantined,
        Self::Late,
        Self::Stale,
        Self::BatchFailed,
        Self::BatchSucceeded,
        Self::BatchCancelled,
    ];

    /// The name in jobs.yaml, the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::Recovered => "recovered",
            Self::Lost => "lost",
            Self::Quarantined => "quarantined",
            Self::Late => "late",
            Self::Stale => "stale",
            Self::BatchFailed => "batch_failed",
            Self::BatchSucceeded => "batch_succeeded",
            Self::BatchCancelled => "batch_cancelled",
        }
    }

    /// Finds an occasion by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|occasion| occasion.name() == name)
    }

    /// The occasion of a job that has come into this state; none for states that nobody is told about.
    #[must_use]
    pub const fn of_state(state: State) -> Option<Self> {
        match state {
            State::Failed | State::Expired => Some(Self::Failed),
            State::Succeeded => Some(Self::Succeeded),
            State::Lost => Some(Self::Lost),
            State::Quarantined => Some(Self::Quarantined),
            State::Scheduled | State::Queued | State::Assigned | State::Running | State::Cancelled => None,
        }
    }

    /// The occasion of a batch that has ended in this state; none for a state that is no end of a batch.
    #[must_use]
    pub const fn of_batch(state: State) -> Option<Self> {
        match state {
            State::Failed => Some(Self::BatchFailed),
            State::Succeeded => Some(Self::BatchSucceeded),
            State::Cancelled => Some(Self::BatchCancelled),
            _ => None,
        }
    }

    /// True if the occasion is the end of a batch.
    #[must_use]
    pub const fn is_about_batch(self) -> bool {
        matches!(self, Self::BatchFailed | Self::BatchSucceeded | Self::BatchCancelled)
    }

    /// True for those that a target without `on` is told of: all that a person should look at, and its end. A message about a batch is for
    /// those who want it instead of messages about its members.
    const fn is_standard(self) -> bool {
        !matches!(self, Self::Succeeded) && !self.is_about_batch()
    }
}

/// A set of occasions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occasions(u16);

impl Occasions {
    /// The occasions of a target that names none.
    #[must_use]
    pub fn standard() -> Self {
        Occasion::ALL.into_iter().filter(|occasion| occasion.is_standard()).collect()
    }

    /// True if the occasion is one of them.
    #[must_use]
    pub const fn contains(self, occasion: Occasion) -> bool {
        self.0 & (1 << occasion as u8) != 0
    }

    /// The occasions, in the order of [`Occasion::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Occasion> {
        Occasion::ALL.into_iter().filter(move |occasion| self.contains(*occasion))
    }
}

impl FromIterator<Occasion> for Occasions {
    fn from_iter<I: IntoIterator<Item = Occasion>>(occasions: I) -> Self {
        Self(occasions.into_iter().fold(0, |set, occasion| set | 1 << occasion as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_told_of_all_but_success_and_batches_unless_it_says_so() {
        let names: Vec<_> = Occasions::standard().iter().map(Occasion::name).collect();
        assert_eq!(names, ["failed", "recovered", "lost", "quarantined", "late", "stale"]);
    }

    #[test]
    fn every_occasion_is_found_by_its_name() {
        for occasion in Occasion::ALL {
            assert_eq!(Occasion::find(occasion.name()), Some(occasion));
            assert!(Occasions::from_iter([occasion]).contains(occasion));
        }
    }

    #[test]
    fn nobody_is_told_of_a_cancelled_job() {
        assert_eq!(Occasion::of_batch(State::Running), None);
        assert_eq!(Occasion::of_state(State::Cancelled), None);
        assert_eq!(Occasion::of_state(State::Expired), Some(Occasion::Failed));
    }
}
