//! The attempts of a worker: current ones, lost ones whose containers may still exist, and those that the database does not know.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::Phase;
use protocol::{JobId, RuntimeKind, SessionId, Token};

use crate::queue::QueueKey;
use crate::reservation::{InUse, Reserved};

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
    /// Reservations of its current attempts and of its unconfirmed ones; those that reserve nothing are not listed.
    reserved: BTreeMap<Token, Reserved>,
    /// All of them together.
    in_use: InUse,
    /// `in_use` has changed since [`Self::take_changed`].
    is_changed: bool,
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

    /// Waits for the worker to confirm that this attempt is gone. It keeps its reservation until then.
    pub fn await_confirmation(
        &mut self,
        token: Token,
        attempt: UnconfirmedAttempt,
        reserved: Option<Reserved>,
    ) {
        self.unconfirmed.insert(token, attempt);
        self.reserve(token, reserved);
        if self.unconfirmed.len() > UNCONFIRMED_MAX
            && let Some((oldest, _)) = self.unconfirmed.pop_first()
        {
            self.release_reservation(oldest);
        }
    }

    /// Does not wait for the worker to confirm this attempt any longer. Returns what it waited for.
    pub fn drop_unconfirmed(&mut self, token: Token) -> Option<UnconfirmedAttempt> {
        let dropped = self.unconfirmed.remove(&token)?;
        self.release_reservation(token);
        Some(dropped)
    }

    /// Drops the unconfirmed attempts of a job. Returns false if there are none.
    pub fn drop_unconfirmed_of(&mut self, job: JobId) -> bool {
        let of_job: Vec<Token> = self.unconfirmed.keys().filter(|it| it.job == job).copied().collect();
        for token in &of_job {
            self.drop_unconfirmed(*token);
        }
        !of_job.is_empty()
    }

    /// Records the reservation of an attempt.
    pub fn reserve(&mut self, token: Token, reserved: Option<Reserved>) {
        self.release_reservation(token);
        if let Some(reserved) = reserved {
            self.in_use.add(&reserved);
            self.is_changed = true;
            self.reserved.insert(token, reserved);
        }
    }

    /// Gives the reservation of an attempt back.
    pub fn release_reservation(&mut self, token: Token) {
        if let Some(reserved) = self.reserved.remove(&token) {
            self.in_use.remove(&reserved);
            self.is_changed = true;
        }
    }

    /// Reservations of attempts, unconfirmed ones included.
    pub fn reserved(&self) -> impl Iterator<Item = (Token, &Reserved)> {
        self.reserved.iter().map(|(token, reserved)| (*token, reserved))
    }

    /// Returns whether reservations have changed since the last call, or [`Self::mark_changed`] was called.
    pub const fn take_changed(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    /// The next call of [`Self::take_changed`] returns true.
    pub const fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// All reservations together.
    #[must_use]
    pub const fn in_use(&self) -> &InUse {
        &self.in_use
    }

    /// Removes an unmanaged attempt. Returns whether it was one.
    pub fn remove_unmanaged(&mut self, token: Token) -> bool {
        self.unmanaged.contains_key(&token) && Arc::make_mut(&mut self.unmanaged).remove(&token).is_some()
    }
}
