//! The attempts of this runtime: those that it tracks, and those that it is removing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Token;
use tokio::sync::mpsc;

use super::attempt::Attempt;
use super::foreign::UnmanagedRemovals;
use super::remove::QueuedRemoval;
use crate::attempt_dir::AttemptDir;
use crate::runtime::Membership;
use crate::runtime::removals::{PendingRemovals, RemovalGuard};

/// Attempts by token, and the removals under way.
pub(super) struct TrackedAttempts {
    membership: Mutex<Option<Membership>>,
    attempts: Mutex<HashMap<Token, Arc<Attempt>>>,
    pub(super) removals: PendingRemovals,
    pub(super) unmanaged_removals: UnmanagedRemovals,
    /// `true` once all attempts of an earlier process are known.
    pub(super) is_recovery_complete: AtomicBool,
    removal_queue: mpsc::UnboundedSender<QueuedRemoval>,
}

impl TrackedAttempts {
    /// An empty registry, and the receiver of its removals.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<QueuedRemoval>) {
        let (removal_queue, removals) = mpsc::unbounded_channel();
        let registry = Self {
            membership: Mutex::default(),
            attempts: Mutex::default(),
            removals: PendingRemovals::default(),
            unmanaged_removals: UnmanagedRemovals::default(),
            is_recovery_complete: AtomicBool::new(false),
            removal_queue,
        };
        (registry, removals)
    }

    /// Starts to track an attempt. Returns `false` if it is tracked already.
    pub(super) fn track(&self, attempt: &Arc<Attempt>) -> bool {
        let mut attempts = self.attempts();
        if attempts.contains_key(&attempt.token()) {
            return false;
        }
        attempts.insert(attempt.token(), Arc::clone(attempt));
        true
    }

    pub(super) fn untrack(&self, token: Token) -> Option<Arc<Attempt>> {
        self.attempts().remove(&token)
    }

    pub(super) fn attempt(&self, token: Token) -> Option<Arc<Attempt>> {
        self.attempts().get(&token).map(Arc::clone)
    }

    pub(super) fn attempt_by_name(&self, name: &str) -> Option<Arc<Attempt>> {
        self.attempts().values().find(|it| it.name == name).map(Arc::clone)
    }

    /// Images of the tracked attempts that have not ended, as their definitions write them.
    pub(super) fn wanted_images(&self) -> BTreeSet<String> {
        let attempts = self.attempts();
        let live = attempts.values().filter(|it| !it.has_ended());
        live.map(|it| it.launch.spec.image.clone()).collect()
    }

    /// Directories of the tracked attempts that have not ended.
    pub(super) fn live_dirs(&self) -> Vec<AttemptDir> {
        self.attempts().values().filter(|it| !it.has_ended()).map(|it| it.dir.clone()).collect()
    }

    /// The tracked attempts, and those that are being removed.
    pub(super) fn tracked_or_being_removed(&self) -> HashSet<Token> {
        // In this order an attempt that moves from one set to the other is seen.
        let known: HashSet<Token> = self.attempts().keys().copied().collect();
        self.removals.pending().into_iter().chain(known).collect()
    }

    /// Sets the identity of this worker; returns the one before.
    pub(super) fn set_membership(&self, membership: Membership) -> Option<Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner).replace(membership)
    }

    pub(super) fn membership(&self) -> Option<Membership> {
        *self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues container and directory of an attempt for removal.
    pub(super) fn queue_removal(&self, name: String, dir: AttemptDir, removal: RemovalGuard) {
        // The receiver lives as long as the runtime.
        let _ = self.removal_queue.send(QueuedRemoval { name, dir, _removal: removal });
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Token, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
