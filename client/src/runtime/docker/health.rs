//! The state of the engine. The state machine gets each change once; while the engine is unreachable, it is pinged every few seconds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::report::Availability;
use tokio::sync::watch;
use tokio::time::Instant;
use worker::input::RuntimeEvent;

use crate::runtime::Events;

/// Known facts about the engine.
pub(super) struct Health {
    events: Events,
    facts: watch::Sender<EngineFacts>,
    last_down: Mutex<Option<Instant>>,
}

#[derive(Clone, Default)]
struct EngineFacts {
    /// The engine's answer; `None` before the first call.
    engine: Option<Availability>,
    /// The reason why containers of an earlier process are not known yet.
    unlisted: Option<String>,
    /// The reason why the engine starts nothing although it answers.
    doubt: Option<String>,
    /// The last availability that was reported.
    reported: Option<Availability>,
}

impl Health {
    pub(super) fn new(events: Events) -> Self {
        Self { events, facts: watch::Sender::default(), last_down: Mutex::new(None) }
    }

    /// Marks the engine as unreachable. Returns `true` if that is new.
    pub(super) fn set_down(&self, why: &str) -> bool {
        self.record_outage();
        self.change(|facts| {
            let news = facts.answers() != Some(false);
            if news {
                facts.engine = Some(Availability::Unavailable(why.to_owned()));
            }
            news
        })
    }

    /// Marks the engine as reachable.
    pub(super) fn set_up(&self) {
        if self.facts.borrow().answers() == Some(false) {
            // The end of an outage counts too: containers that died with the engine are only seen then.
            *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.change(|facts| {
            let news = facts.answers() != Some(true);
            facts.engine = Some(Availability::Available);
            news
        });
    }

    /// Records that the engine was unreachable a moment ago, although it answers.
    pub(super) fn record_outage(&self) {
        *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Marks containers of an earlier process as unknown: until they are known, no jobs may come.
    pub(super) fn set_unlisted(&self, why: String) {
        self.change(|facts| facts.unlisted.replace(why.clone()) != Some(why));
    }

    /// Marks containers of an earlier process as known.
    pub(super) fn set_listed(&self) {
        self.change(|facts| facts.unlisted.take().is_some());
    }

    /// Marks the engine as unable to start anything. Returns `true` if that is new; then the caller starts a probe.
    pub(super) fn set_unable_to_start(&self, why: String) -> bool {
        self.change(|facts| {
            let news = facts.doubt.is_none();
            facts.doubt.get_or_insert(why);
            news
        })
    }

    /// Marks the engine as able to start containers.
    pub(super) fn set_able_to_start(&self) {
        self.change(|facts| facts.doubt.take().is_some());
    }

    /// Waits until the engine is known to be unreachable.
    pub(super) async fn wait_until_down(&self) {
        // Here and below, the sender lives as long as `self`.
        let _ = self.facts.subscribe().wait_for(|facts| facts.answers() == Some(false)).await;
    }

    /// Waits until the engine is not known to be unreachable.
    pub(super) async fn wait_until_up(&self) {
        let _ = self.facts.subscribe().wait_for(|facts| facts.answers() != Some(false)).await;
    }

    /// `true` if the engine was unreachable within this time.
    pub(super) fn was_down_within(&self, span: Duration) -> bool {
        let last = *self.last_down.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() <= span)
    }

    /// Changes the facts and reports a changed availability. Returns the result of `change`.
    fn change(&self, change: impl FnOnce(&mut EngineFacts) -> bool) -> bool {
        self.facts.send_if_modified(|facts| {
            let news = change(facts);
            if let Some(now) = facts.availability().filter(|_| news)
                && facts.reported.as_ref() != Some(&now)
            {
                facts.reported = Some(now.clone());
                // The receiver is gone: the worker is shutting down.
                let _ = self.events.send(RuntimeEvent::Availability(RuntimeKind::Docker, now));
            }
            news
        })
    }
}

impl EngineFacts {
    fn answers(&self) -> Option<bool> {
        self.engine.as_ref().map(Availability::is_available)
    }

    /// The availability for jobs.
    fn availability(&self) -> Option<Availability> {
        match (&self.engine, self.unlisted.as_ref().or(self.doubt.as_ref())) {
            (Some(Availability::Unavailable(_)), _) | (_, None) => self.engine.clone(),
            (_, Some(why)) => Some(Availability::Unavailable(why.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_is_told_once() {
        let (events, mut reported) = mpsc::unbounded_channel();
        let health = Health::new(events);
        assert!(health.set_down("gone") && !health.set_down("still gone"));
        health.set_up();
        health.set_up();
        health.wait_until_up().await;
        let reported: Vec<_> = std::iter::from_fn(|| reported.try_recv().ok()).collect();
        assert_eq!(
            reported,
            [
                RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Unavailable("gone".into())),
                RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available),
            ]
        );
        assert!(health.was_down_within(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!health.was_down_within(Duration::from_secs(5)));
    }

    #[tokio::test]
    async fn an_engine_that_starts_nothing_is_unavailable_although_it_answers() {
        let (events, mut reported) = mpsc::unbounded_channel();
        let health = Health::new(events);
        health.set_up();
        assert!(
            health.set_unable_to_start("no space".into()) && !health.set_unable_to_start("still none".into())
        );
        health.set_down("gone");
        health.set_up();
        health.wait_until_up().await;
        health.set_able_to_start();
        let reported: Vec<_> = std::iter::from_fn(|| reported.try_recv().ok()).collect();
        let unavailable = |why: &str| Availability::Unavailable(why.into());
        let expected = [
            Availability::Available,
            unavailable("no space"),
            unavailable("gone"),
            unavailable("no space"),
            Availability::Available,
        ];
        assert_eq!(reported, expected.map(|it| RuntimeEvent::Availability(RuntimeKind::Docker, it)));
    }
}
