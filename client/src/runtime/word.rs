//! The brain's word that a container may be made. What an attempt needs may take long to fetch, and the server's promise may run out
//! meanwhile: so a runtime asks when it has everything, and not before.

use protocol::Token;
use tokio::sync::{Notify, watch};
use worker::input::RuntimeEvent;

use super::Events;
use crate::attempt_dir::Stopping;

/// One attempt's. Each answer is good for one container.
#[derive(Default)]
pub(super) struct Word {
    given: Notify,
}

impl Word {
    /// It may be made now.
    pub(super) fn give(&self) {
        self.given.notify_one();
    }

    /// Asks, and waits for the answer. Whether it may be made: not if the attempt is to be stopped.
    pub(super) async fn ask(
        &self,
        token: Token,
        events: &Events,
        stopping: &watch::Sender<Option<Stopping>>,
    ) -> bool {
        let mut stopping = stopping.subscribe();
        // Nobody listens any more: the worker is leaving.
        let _ = events.send(RuntimeEvent::Prepared(token));
        tokio::select! {
            biased;
            _ = stopping.wait_for(Option::is_some) => false,
            () = self.given.notified() => true,
        }
    }
}
