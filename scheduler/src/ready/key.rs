//! What the lanes are known by: jobs of one lane are alike to every worker.

use protocol::WorkerId;

use crate::definitions::DefinitionNo;

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Jobs of this definition that any worker may run.
    Definition(DefinitionNo),
    /// Jobs of a definition that only this worker may run.
    Pinned(WorkerId, DefinitionNo),
}

impl LaneKey {
    /// The only worker that may run its jobs, if there is but one.
    #[must_use]
    pub const fn pinned_to(self) -> Option<WorkerId> {
        match self {
            Self::Definition(_) => None,
            Self::Pinned(only, _) => Some(only),
        }
    }

    /// What its jobs are made of.
    #[must_use]
    pub const fn definition(self) -> DefinitionNo {
        match self {
            Self::Definition(number) | Self::Pinned(_, number) => number,
        }
    }
}
