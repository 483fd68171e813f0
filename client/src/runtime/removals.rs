//! Removals of attempts that are under way. A survey may find an attempt unstarted, so the worker gives it back and removes it. The server
//! may then assign it again under the same token. The new start waits until the old directory and container are removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::Token;
use tokio::sync::watch;

/// The attempts that are being removed. Clones share one set.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRemovals {
    pending: Arc<watch::Sender<BTreeSet<Token>>>,
}

/// Dropped when the removal of its attempt ends: a new start of the attempt may go on then.
#[derive(Debug)]
pub(super) struct RemovalGuard {
    token: Token,
    pending: Arc<watch::Sender<BTreeSet<Token>>>,
}

impl PendingRemovals {
    /// Marks an attempt as being removed until the guard is dropped.
    pub(super) fn begin(&self, token: Token) -> RemovalGuard {
        self.pending.send_modify(|pending| {
            pending.insert(token);
        });
        RemovalGuard { token, pending: Arc::clone(&self.pending) }
    }

    /// All attempts that are being removed.
    pub(super) fn pending(&self) -> BTreeSet<Token> {
        self.pending.borrow().clone()
    }

    /// Waits for the removal of this attempt, if one is under way.
    pub(super) async fn wait_for(&self, token: Token) {
        // The sender lives as long as `self`.
        let _ = self.pending.subscribe().wait_for(|pending| !pending.contains(&token)).await;
    }

    /// Waits until no attempt is being removed.
    pub(super) async fn wait_for_all(&self) {
        let _ = self.pending.subscribe().wait_for(BTreeSet::is_empty).await;
    }
}

impl Drop for RemovalGuard {
    fn drop(&mut self) {
        self.pending.send_modify(|pending| {
            pending.remove(&self.token);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use protocol::JobId;

    use super::*;

    #[tokio::test]
    async fn a_start_waits_for_its_own_removal_only() {
        let (removals, token) =
            (PendingRemovals::default(), |job| Token { job: JobId(job), ..Token::default() });
        let removal = removals.begin(token(1));
        assert!(removals.wait_for(token(2)).now_or_never().is_some());
        assert!(removals.wait_for_all().now_or_never().is_none());
        let mut wait = Box::pin(removals.wait_for(token(1)));
        assert!(wait.as_mut().now_or_never().is_none());
        drop(removal);
        wait.await;
        removals.wait_for_all().await;
    }
}
