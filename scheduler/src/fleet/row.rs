//! The stored row of a worker.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::JoinTokenId;
use crate::origin::Intervention;
use protocol::{Incarnation, Timestamp, WorkerId};

/// The stored row of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Wall-clock time of its first join.
    pub joined_at: Timestamp,
    /// Wall-clock time at which it was last heard; stored once a minute.
    pub seen_at: Timestamp,
    /// It gets no new attempts.
    pub cordoned: bool,
    /// The command that cordoned or drained it; absent while it is not cordoned, and for a cordon of an older version.
    pub cordon: Option<Intervention>,
    /// Slots that an operator set.
    pub slots: Option<u32>,
    /// The drain, in progress or completed.
    pub drain: Option<Drain>,
    /// Labels that an operator set over its own, ordered by name.
    pub labels: Vec<(String, String)>,
    /// The process that was accepted last; absent in rows of older versions.
    pub process: Option<Process>,
    /// The join token by which it joined, if that is in the store.
    pub join_token: Option<JoinTokenId>,
    /// Labels that its join token granted, ordered by name. They stay as long as the worker.
    pub granted: Vec<(String, String)>,
    /// Wall-clock time at which an operator revoked it: its secret is refused from then on.
    pub revoked_at: Option<Timestamp>,
}

impl WorkerRow {
    /// The server recalls what the worker has not begun: it is cordoned. One that drains gives its backlog back by itself.
    pub(crate) const fn recalls_backlog(&self) -> bool {
        self.cordoned && self.drain.is_none()
    }

    /// Cordons the worker, or ends its cordon.
    pub(crate) fn set_cordon(&mut self, cordon: Option<Intervention>) {
        self.cordoned = cordon.is_some();
        self.cordon = cordon.map(|cordon| cordon.after(self.cordon.take()));
    }

    /// Wall-clock time at which its cordon ends by itself.
    #[must_use]
    pub fn cordon_end(&self) -> Option<Timestamp> {
        self.cordon.as_ref()?.until
    }
}

/// A process of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Start counter of its state directory.
    pub incarnation: Incarnation,
    /// Random number of the process; neither another process nor a copy of the state directory has it.
    pub number: u64,
}

impl Process {
    /// No process: clones were heard, and all are refused. No start counter follows it.
    pub const NONE: Self = Self { incarnation: Incarnation(u64::MAX), number: 0 };
}

/// A drain: the worker finishes its attempts and leaves. A draining worker is also cordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The process that is to leave; absent: the next one that connects.
    pub process: Option<Incarnation>,
    /// Time at which running attempts are stopped.
    pub deadline: Option<Timestamp>,
}
