//! The state machine's permissions: to pull an image, when a pull slot is free; and to create a container, when a slot is free and the lease
//! holds. Fetching an image may take long, and the lease may run out meanwhile; so a runtime asks for the second when everything is there,
//! and not before.

use protocol::Token;
use tokio::sync::{Notify, watch};
use worker::input::RuntimeEvent;

use super::Events;
use crate::attempt_dir::Stopping;

/// The permission of one attempt to pull. Each grant is good for one request.
#[derive(Default)]
pub(super) struct PullPermit {
    granted: Notify,
}

impl PullPermit {
    /// Allows the image to be pulled.
    pub(super) fn grant(&self) {
        self.granted.notify_one();
    }

    /// Reports that the image is missing, and waits.
    pub(super) async fn request(&self, token: Token, events: &Events) {
        // The receiver is gone: the worker is shutting down.
        let _ = events.send(RuntimeEvent::ImageMissing(token));
        self.granted.notified().await;
    }
}

/// The permit of one attempt. Each grant is good for one container.
#[derive(Default)]
pub(super) struct StartPermit {
    granted: Notify,
}

impl StartPermit {
    /// Allows the container to be created.
    pub(super) fn grant(&self) {
        self.granted.notify_one();
    }

    /// Asks for the permit and waits. Returns `false` if the attempt is to be stopped.
    pub(super) async fn request(
        &self,
        token: Token,
        events: &Events,
        stopping: &watch::Sender<Option<Stopping>>,
    ) -> bool {
        let mut stopping = stopping.subscribe();
        // The receiver is gone: the worker is shutting down.
        let _ = events.send(RuntimeEvent::Prepared(token));
        tokio::select! {
            biased;
            _ = stopping.wait_for(Option::is_some) => false,
            () = self.granted.notified() => true,
        }
    }
}
