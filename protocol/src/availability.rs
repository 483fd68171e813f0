//! Availability of a worker's runtimes.

use alloc::string::String;

use bincode::{Decode, Encode};

/// Availability of a runtime. In an Inventory, the part of a runtime that answers is complete.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Availability {
    /// The runtime takes jobs.
    Available,
    /// The runtime takes no jobs; the reason. It does not answer, unless the reason begins with [`CANNOT_START`].
    Unavailable(String),
}

impl Availability {
    /// Returns true if the runtime takes jobs.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self, Self::Available)
    }

    /// Returns true if the worker sees what runs there, and can stop it.
    #[must_use]
    pub fn answers(&self) -> bool {
        match self {
            Self::Available => true,
            Self::Unavailable(why) => why.starts_with(CANNOT_START),
        }
    }
}

/// Begins the reason of a runtime that answers and can start nothing, as on a full disk.
pub const CANNOT_START: &str = "cannot start jobs: ";
