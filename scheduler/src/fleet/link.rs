//! Whether a worker is there, and how far its greeting has come.

use protocol::SessionId;

/// A worker's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// None.
    Away,
    /// Welcomed; its inventory is coming in.
    Joining(SessionId),
    /// Reconciled.
    Ready(SessionId),
}

impl Link {
    /// The session, if there is one.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Away => None,
            Self::Joining(session) | Self::Ready(session) => Some(*session),
        }
    }
}
