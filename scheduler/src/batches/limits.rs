//! The limits of a batch, and changes of them.

/// The limits of a batch, which can be changed while it is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchLimits {
    /// After this many failed members, those that have not started are cancelled.
    pub max_failures: Option<u32>,
    /// Members that may be on workers at once.
    pub concurrency: Option<u32>,
}

/// The new value of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NewLimit {
    /// It stays as it is.
    #[default]
    Keep,
    /// There is none any more.
    Lift,
    /// It has this value.
    Set(u32),
}

impl NewLimit {
    /// The limit from now on.
    #[must_use]
    pub const fn instead_of(self, former: Option<u32>) -> Option<u32> {
        match self {
            Self::Keep => former,
            Self::Lift => None,
            Self::Set(limit) => Some(limit),
        }
    }
}

/// A change of the limits of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchUpdate {
    /// Of the failures after which it stops.
    pub max_failures: NewLimit,
    /// Of the members that may be on workers at once.
    pub concurrency: NewLimit,
}
