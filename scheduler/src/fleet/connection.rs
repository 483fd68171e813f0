//! The state of a worker's connection.

use protocol::SessionId;

/// A worker's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not connected.
    Away,
    /// Welcomed; its inventory is being received.
    Joining(SessionId),
    /// The worker has reconciled its attempts and may get new ones.
    Ready(SessionId),
}

impl Link {
    /// The session, if the worker is connected.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Away => None,
            Self::Joining(session) | Self::Ready(session) => Some(*session),
        }
    }
}
