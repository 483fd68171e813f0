//! The origin of an operator's command that lasts: a cordon, a drain, a pause. People read it; no decision depends on it.

use alloc::sync::Arc;

use protocol::{Now, Timestamp};

/// The requester of a command, and the reason that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Name of the token or user; empty if it is not known.
    pub by: Arc<str>,
    /// The reason as it was given.
    pub reason: Option<Arc<str>>,
}

/// A cordon or a pause that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervention {
    /// Wall-clock time of the command.
    pub since: Timestamp,
    /// Wall-clock time at which it ends by itself; absent: an operator ends it.
    pub until: Option<Timestamp>,
    /// The requester and the reason.
    pub origin: Origin,
}

impl Intervention {
    /// An intervention that begins now.
    #[must_use]
    pub const fn at(now: Now, origin: Origin) -> Self {
        Self { since: now.utc, until: None, origin }
    }

    /// The intervention after a further command: the new one, with the former reason if it has none.
    #[must_use]
    pub fn followed_by(former: Option<Self>, mut next: Self) -> Self {
        let former_reason = former.and_then(|it| it.origin.reason);
        next.origin.reason = next.origin.reason.or(former_reason);
        next
    }
}

/// One that nobody is known to have made.
impl From<Timestamp> for Intervention {
    fn from(since: Timestamp) -> Self {
        Self { since, until: None, origin: Origin::default() }
    }
}
