//! The attempts of a worker: current ones, lost ones whose containers may still exist, and those that the database does not know.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use protocol::report::Phase;
use protocol::{JobId, RuntimeKind, SessionId, Token};

use crate::queue::QueueKey;

/// The attempts of a worker.
#[derive(Debug, Default)]
pub struct Holdings {
    /// Jobs whose current attempt it holds.
    pub jobs: BTreeSet<JobId>,
    /// The prefetched ones of these, which wait in its backlog.
    pub prefetched: BTreeSet<QueueKey>,
    /// Lost attempts whose containers may still exist.
    pub unconfirmed: BTreeMap<Token, UnconfirmedAttempt>,
    /// Unmanaged attempts: they run until an operator decides.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
}

/// A lost attempt whose container may still exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnconfirmedAttempt {
    /// Its runtime.
    pub runtime: RuntimeKind,
    /// The session in which it was lost, if it may have been sent in that session.
    pub session: Option<SessionId>,
}

/// Unconfirmed attempts per worker: more than a worker may hold at once. The oldest are dropped.
const UNCONFIRMED_MAX: usize = 32_768;

impl Holdings {
    /// Number of attempts, unmanaged ones included.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.jobs.len() + self.unmanaged.len()).unwrap_or(u32::MAX)
    }

    /// Waits for the worker to confirm that this attempt is gone.
    pub fn await_confirmation(&mut self, token: Token, attempt: UnconfirmedAttempt) {
        self.unconfirmed.insert(token, attempt);
        if self.unconfirmed.len() > UNCONFIRMED_MAX {
            self.unconfirmed.pop_first();
        }
    }

    /// Removes an unmanaged attempt. Returns whether it was one.
    pub fn remove_unmanaged(&mut self, token: Token) -> bool {
        self.unmanaged.contains_key(&token) && Arc::make_mut(&mut self.unmanaged).remove(&token).is_some()
    }
}
