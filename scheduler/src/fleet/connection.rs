//! The connection of a worker, with the state that lives as long as its session.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use protocol::report::Phase;
use protocol::{Revision, SessionId, Token};

/// A worker's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not connected.
    Away,
    /// Welcomed; its inventory is being received.
    Joining(Session),
    /// The worker has reconciled its attempts and may get new ones.
    Ready(Session),
}

/// The session of a connected worker. A new connection begins a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// The process finishes its attempts and leaves. It says so again on each session, before its inventory.
    pub leaving: bool,
    /// Definitions that were sent.
    pub sent_definitions: BTreeSet<Revision>,
    /// Heartbeat interval that the worker was asked for, if it is shorter than the server's.
    pub heartbeat: Option<Duration>,
    /// The inventory received so far.
    pub inventory: Vec<(Token, Phase)>,
    /// Attempts of the inventory that the archive does not contain.
    pub unknown: BTreeSet<Token>,
    /// Attempts of the last report that the archive does not know as this worker's.
    pub not_owned: BTreeSet<Token>,
}

impl Session {
    /// Begins a session.
    #[must_use]
    pub fn new(id: SessionId) -> Self {
        Self { id, ..Self::default() }
    }
}

impl Link {
    /// The number of the session, if the worker is connected.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.state().map(|session| session.id)
    }

    /// The number of the session, if the worker is reconciled.
    #[must_use]
    pub const fn ready(&self) -> Option<SessionId> {
        match self {
            Self::Ready(session) => Some(session.id),
            Self::Away | Self::Joining(_) => None,
        }
    }

    /// The worker is not connected.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Away)
    }

    /// The inventory is being received.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        matches!(self, Self::Joining(_))
    }

    /// The worker is reconciled.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    /// The process finishes its attempts and leaves.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state().is_some_and(|session| session.leaving)
    }

    /// Heartbeat interval that the worker was asked for, if it is shorter than the server's.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Duration> {
        self.state().and_then(|session| session.heartbeat)
    }

    /// The session, if the worker is connected.
    #[must_use]
    pub const fn state(&self) -> Option<&Session> {
        match self {
            Self::Away => None,
            Self::Joining(session) | Self::Ready(session) => Some(session),
        }
    }

    /// The session, if the worker is connected.
    pub const fn state_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Away => None,
            Self::Joining(session) | Self::Ready(session) => Some(session),
        }
    }

    /// Records that the worker is reconciled. Returns whether this was the first inventory of the session.
    pub fn become_ready(&mut self) -> bool {
        let is_first = self.is_joining();
        *self = match mem::replace(self, Self::Away) {
            Self::Away => Self::Away,
            Self::Joining(session) | Self::Ready(session) => Self::Ready(session),
        };
        is_first
    }
}
