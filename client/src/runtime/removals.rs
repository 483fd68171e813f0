//! What is being removed. An attempt that a survey has found unstarted is forgotten, and the server may hand it over again, under the
//! same token, before the old directory and container are gone: its new start waits for that, or it would write into what is doomed.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::Token;
use tokio::sync::watch;

/// The attempts that are being removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Removals {
    pending: Arc<watch::Sender<BTreeSet<Token>>>,
}

/// The removal of one attempt goes on as long as this lives.
#[derive(Debug)]
pub(super) struct Removal {
    token: Token,
    pending: Arc<watch::Sender<BTreeSet<Token>>>,
}

impl Removals {
    /// From now on it is being removed.
    pub(super) fn begin(&self, token: Token) -> Removal {
        self.pending.send_modify(|pending| {
            pending.insert(token);
        });
        Removal { token, pending: Arc::clone(&self.pending) }
    }

    /// All of them.
    pub(super) fn pending(&self) -> BTreeSet<Token> {
        self.pending.borrow().clone()
    }

    /// Waits until nothing of it is being removed.
    pub(super) async fn wait_for(&self, token: Token) {
        // The sender lives as long as `self`.
        let _ = self.pending.subscribe().wait_for(|pending| !pending.contains(&token)).await;
    }

    /// Waits until nothing is being removed.
    pub(super) async fn wait_for_all(&self) {
        let _ = self.pending.subscribe().wait_for(BTreeSet::is_empty).await;
    }
}

impl Drop for Removal {
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
    async fn a_removal_is_waited_for_and_no_other() {
        let (removals, token) = (Removals::default(), |job| Token { job: JobId(job), ..Token::default() });
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
