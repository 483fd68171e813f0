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
    facts: watch::Sender<Facts>,
    last_down: Mutex<Option<Instant>>,
}

#[derive(Clone, Default)]
struct Facts {
    /// Whether it answers; nothing is known before the first call.
    engine: Option<Availability>,
    /// Why it is not known what it has of ours from before this process, as long as it is not.
    unlisted: Option<String>,
    /// It answers, and starts nothing.
    doubt: Option<String>,
    /// What the brain knows.
    told: Option<Availability>,
}

impl Health {
    pub(super) fn new(events: Events) -> Self {
        Self { events, facts: watch::Sender::default(), last_down: Mutex::new(None) }
    }

    /// It does not answer. Whether that is new: then somebody must go on asking.
    pub(super) fn down(&self, why: &str) -> bool {
        *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.change(|facts| {
            let news = facts.answers() != Some(false);
            if news {
                facts.engine = Some(Availability::Unavailable(why.to_owned()));
            }
            news
        })
    }

    /// It answers.
    pub(super) fn up(&self) {
        if self.facts.borrow().answers() == Some(false) {
            // The end of the gap counts too: what died with the engine is only seen when it is back.
            *self.last_down.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.change(|facts| {
            let news = facts.answers() != Some(true);
            facts.engine = Some(Availability::Available);
            news
        });
    }

    /// What it has of ours from before this process is not known: until it is, no jobs may come.
    pub(super) fn unlisted(&self, why: String) {
        self.change(|facts| facts.unlisted.replace(why.clone()) != Some(why));
    }

    /// Now it is known.
    pub(super) fn listed(&self) {
        self.change(|facts| facts.unlisted.take().is_some());
    }

    /// Nothing can be started there. Whether that is new: then somebody must find out when it can.
    pub(super) fn doubt(&self, why: String) -> bool {
        self.change(|facts| {
            let news = facts.doubt.is_none();
            facts.doubt.get_or_insert(why);
            news
        })
    }

    /// Something was started there.
    pub(super) fn believe(&self) {
        self.change(|facts| facts.doubt.take().is_some());
    }

    /// Waits until it is known not to answer.
    pub(super) async fn wait_until_down(&self) {
        // Here and below: the sender lives as long as `self`.
        let _ = self.facts.subscribe().wait_for(|facts| facts.answers() == Some(false)).await;
    }

    /// Waits until it answers.
    pub(super) async fn wait_until_up(&self) {
        let _ = self.facts.subscribe().wait_for(|facts| facts.answers() != Some(false)).await;
    }

    /// Whether it was gone lately.
    pub(super) fn was_down_within(&self, span: Duration) -> bool {
        let last = *self.last_down.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() <= span)
    }

    /// Changes what is known, and tells the brain what that means for jobs. Whether it was news.
    fn change(&self, change: impl FnOnce(&mut Facts) -> bool) -> bool {
        self.facts.send_if_modified(|facts| {
            let news = change(facts);
            if let Some(now) = facts.availability().filter(|_| news)
                && facts.told.as_ref() != Some(&now)
            {
                facts.told = Some(now.clone());
                // Nobody listens any more if this fails: the worker is leaving.
                let _ = self.events.send(RuntimeEvent::Availability(RuntimeKind::Docker, now));
            }
            news
        })
    }
}

impl Facts {
    fn answers(&self) -> Option<bool> {
        self.engine.as_ref().map(Availability::is_available)
    }

    /// Whether jobs may come.
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

    #[tokio::test]
    async fn an_engine_that_starts_nothing_is_no_use_although_it_answers() {
        let (events, mut told) = mpsc::unbounded_channel();
        let health = Health::new(events);
        health.up();
        assert!(health.doubt("no space".into()) && !health.doubt("still none".into()));
        health.down("gone");
        health.up();
        health.wait_until_up().await;
        health.believe();
        let told: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        let unavailable = |why: &str| Availability::Unavailable(why.into());
        let expected = [
            Availability::Available,
            unavailable("no space"),
            unavailable("gone"),
            unavailable("no space"),
            Availability::Available,
        ];
        assert_eq!(told, expected.map(|it| RuntimeEvent::Availability(RuntimeKind::Docker, it)));
    }
}
