//! Whether the engine can be used. Told to the brain once per change; while it cannot, it is asked again every few seconds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::report::Availability;
use tokio::sync::watch;
use tokio::time::Instant;
use worker::input::RuntimeEvent;

use crate::runtime::Events;

/// What is known about the engine.
pub(super) struct Health {
    events: Events,
    /// Nothing is known before the first call.
    state: watch::Sender<Option<Availability>>,
    last_down: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn new(events: Events) -> Self {
        Self { events, state: watch::Sender::new(None), last_down: Mutex::new(None) }
    }

    pub(super) fn now(&self) -> Option<Availability> {
        self.state.borrow().clone()
    }

    /// It does not answer. Whether that is new: then somebody must go on asking.
    pub(super) fn down(&self, why: &str) -> bool {
        *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.change(Availability::Unavailable(why.to_owned()))
    }

    /// It answers.
    pub(super) fn up(&self) {
        if self.now().is_some_and(|it| !it.is_available()) {
            // The end of the gap counts too: what died with the engine is only seen when it is back.
            *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.change(Availability::Available);
    }

    /// Waits until it is known not to answer.
    pub(super) async fn wait_until_down(&self) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|it| it.as_ref().is_some_and(|it| !it.is_available())).await;
    }

    /// Waits until it answers.
    pub(super) async fn wait_until_up(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|it| it.as_ref().is_none_or(Availability::is_available)).await;
    }

    /// Whether it was gone lately.
    pub(super) fn was_down_within(&self, span: Duration) -> bool {
        let last = *self.last_down.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() <= span)
    }

    /// Whether it was up, or nothing was known, and is down now.
    fn change(&self, new: Availability) -> bool {
        let mut turned_down = false;
        self.state.send_if_modified(|state| {
            let was = state.as_ref().map(Availability::is_available);
            if was == Some(new.is_available()) {
                return false;
            }
            turned_down = !new.is_available();
            // Nobody listens any more if this fails: the worker is leaving.
            let _ = self.events.send(RuntimeEvent::Availability(RuntimeKind::Docker, new.clone()));
            *state = Some(new);
            true
        });
        turned_down
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_is_told_once() {
        let (events, mut told) = mpsc::unbounded_channel();
        let health = Health::new(events);
        assert!(health.down("gone") && !health.down("still gone"));
        health.up();
        health.up();
        health.wait_until_up().await;
        let told: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert_eq!(
            told,
            [
                RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Unavailable("gone".into())),
                RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available),
            ]
        );
        assert!(health.was_down_within(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!health.was_down_within(Duration::from_secs(5)));
    }
}
