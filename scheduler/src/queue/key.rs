//! Identifies a lane. Jobs of one lane have the same requirements for workers, and need the same limits.

use protocol::{JobId, WorkerId};

use crate::ids::DefinitionNo;
use crate::limits::keys::KeySetNo;

/// Identifies a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Jobs of this definition with these keys that any worker may run.
    Definition(DefinitionNo, KeySetNo),
    /// Jobs of a definition that lists its workers, with these keys. They go before jobs that any worker may run.
    Listed(DefinitionNo, KeySetNo),
    /// Jobs of a definition with these keys that only this worker may run.
    Pinned(WorkerId, DefinitionNo, KeySetNo),
    /// Members that must not share a worker with a sibling. `JobId` is the parent for members not yet placed, else the member itself.
    Distinct(JobId, DefinitionNo, KeySetNo),
    /// Members of paused batches of a definition, with these keys. It is never next.
    Paused(DefinitionNo, KeySetNo),
    /// As `Paused`, of jobs that only this worker may run.
    PausedPinned(WorkerId, DefinitionNo, KeySetNo),
}

impl LaneKey {
    /// No lane sorts before it.
    pub(super) const FIRST: Self = Self::Definition(DefinitionNo(0), KeySetNo(0));

    /// Its jobs go before jobs of the same priority that any worker may run.
    #[must_use]
    pub const fn goes_first(self) -> bool {
        matches!(self, Self::Listed(..) | Self::Pinned(..) | Self::Distinct(..))
    }

    /// The only worker that may run its jobs, if there is one.
    #[must_use]
    pub const fn pinned_to(self) -> Option<WorkerId> {
        match self {
            Self::Definition(..) | Self::Listed(..) | Self::Distinct(..) | Self::Paused(..) => None,
            Self::Pinned(only, ..) | Self::PausedPinned(only, ..) => Some(only),
        }
    }

    /// The parent or member whose siblings' workers its jobs keep off.
    #[must_use]
    pub const fn distinct_of(self) -> Option<JobId> {
        match self {
            Self::Distinct(of, ..) => Some(of),
            _ => None,
        }
    }

    /// Definition of its jobs.
    #[must_use]
    pub const fn definition(self) -> DefinitionNo {
        match self {
            Self::Definition(number, _)
            | Self::Listed(number, _)
            | Self::Pinned(_, number, _)
            | Self::Distinct(_, number, _)
            | Self::Paused(number, _)
            | Self::PausedPinned(_, number, _) => number,
        }
    }

    /// Keys of its jobs.
    #[must_use]
    pub const fn key_set(self) -> KeySetNo {
        match self {
            Self::Definition(_, key_set)
            | Self::Listed(_, key_set)
            | Self::Pinned(_, _, key_set)
            | Self::Distinct(_, _, key_set)
            | Self::Paused(_, key_set)
            | Self::PausedPinned(_, _, key_set) => key_set,
        }
    }

    /// Its jobs are members of paused batches.
    #[must_use]
    pub const fn is_paused(self) -> bool {
        matches!(self, Self::Paused(..) | Self::PausedPinned(..))
    }

    /// The lane of such a job while its batch is paused.
    #[must_use]
    pub const fn paused(self) -> Self {
        match self.pinned_to() {
            Some(only) => Self::PausedPinned(only, self.definition(), self.key_set()),
            None => Self::Paused(self.definition(), self.key_set()),
        }
    }

    /// Its jobs need a limit.
    #[must_use]
    pub const fn is_limited(self) -> bool {
        self.key_set().is_limited()
    }

    /// It takes turns with the lanes of other keys.
    #[must_use]
    pub const fn takes_turns(self) -> bool {
        matches!(self, Self::Definition(_, key_set) | Self::Listed(_, key_set) if key_set.is_keyed())
    }
}
