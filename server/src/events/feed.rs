//! The way from the engine to the events: a queue of committed groups, and the task that empties it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "otel")]
use protocol::JobId;
use protocol::Revision;
use scheduler::snapshot::Snapshot;
#[cfg(feature = "otel")]
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Events;
use super::feed_state::FeedState;
use super::id::EventId;
use super::ring::EVENTS_MAX;
use crate::metrics::Metrics;
use crate::store::Group;

/// Changes that may wait for the feed. It takes a fraction of the time of a commit for each, so more than this means that the machine gives
/// it no time; then the events are lost, and readers are told.
const CHANGES_WAITING_MAX: usize = 1_000_000;

/// An item of the queue.
#[derive(Debug)]
enum FeedItem {
    /// A revision that a job is about to be made of.
    Revision(Revision, String),
    /// A group after its commit, and a snapshot that was published with it.
    Committed(Option<Arc<Group>>, Option<Arc<Snapshot>>),
    /// Groups before this point were left out; the last of them had this id before its first event.
    Lost(EventId),
}

/// The engine's end of the queue. Sending never waits and never fails.
#[derive(Debug)]
pub struct EventSender {
    items: UnboundedSender<FeedItem>,
    changes_waiting: Arc<AtomicUsize>,
    /// The last group that was left out, until the feed is told.
    lost: Option<EventId>,
    metrics: Arc<Metrics>,
}

impl EventSender {
    /// The counters that the feed keeps.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Announces a revision that is not part of jobs.yaml.
    pub fn learn(&self, revision: Revision, name: &str) {
        // Without a feed nobody needs the name.
        let _ = self.items.send(FeedItem::Revision(revision, name.to_owned()));
    }

    /// Hands over a group after its commit, and the snapshot that was published with it.
    pub fn publish(&mut self, group: Option<Arc<Group>>, snapshot: Option<Arc<Snapshot>>) {
        if group.is_none() && snapshot.is_none() || self.items.is_closed() {
            return;
        }
        let changes = group.as_ref().map_or(0, |group| group.changes.len());
        if self.changes_waiting.load(Ordering::Relaxed) + changes > CHANGES_WAITING_MAX {
            if let Some(group) = group {
                self.lost = Some(EventId::before_group(&group));
                // Events of later groups name the definitions of this one.
                for stored in &group.definitions {
                    self.learn(stored.revision, &stored.name);
                }
            }
            return;
        }
        if let Some(last) = self.lost.take() {
            let _ = self.items.send(FeedItem::Lost(last));
        }
        self.changes_waiting.fetch_add(changes, Ordering::Relaxed);
        // The receiver may have just gone.
        let _ = self.items.send(FeedItem::Committed(group, snapshot));
    }
}

/// The task that makes events of committed groups. Run it beside the engine; it ends with it.
#[derive(Debug)]
pub struct EventFeed {
    items: UnboundedReceiver<FeedItem>,
    changes_waiting: Arc<AtomicUsize>,
    events: Events,
    state: FeedState,
    /// Takes the numbers of jobs that have ended.
    #[cfg(feature = "otel")]
    ends: Option<Sender<JobId>>,
}

/// The queue, its task, and the kept events. `state` is that at the start.
#[must_use]
pub fn channel(state: FeedState) -> (EventSender, EventFeed, Events) {
    with_capacity(state, EVENTS_MAX)
}

/// As [`channel`], with another number of kept events.
#[must_use]
pub fn with_capacity(state: FeedState, events_max: usize) -> (EventSender, EventFeed, Events) {
    let (sender, items) = unbounded_channel();
    let changes_waiting = Arc::<AtomicUsize>::default();
    let events = Events::new(state.last_id(), events_max);
    let metrics = state.metrics();
    let feed = EventFeed {
        items,
        changes_waiting: changes_waiting.clone(),
        events: events.clone(),
        state,
        #[cfg(feature = "otel")]
        ends: None,
    };
    (EventSender { items: sender, changes_waiting, lost: None, metrics }, feed, events)
}

impl EventFeed {
    /// Also hands over the numbers of jobs that have ended. Those that find no room are counted as traces that were dropped.
    #[cfg(feature = "otel")]
    #[must_use]
    pub fn with_ends(self, ends: Sender<JobId>) -> Self {
        Self { ends: Some(ends), ..self }
    }

    /// Makes events until the engine has ended.
    pub async fn run(mut self) {
        while let Some(item) = self.items.recv().await {
            self.take(item);
            // A large group takes some milliseconds, and there may be many.
            tokio::task::yield_now().await;
        }
    }

    fn take(&mut self, item: FeedItem) {
        match item {
            FeedItem::Revision(revision, name) => self.state.learn(revision, &name),
            FeedItem::Committed(group, snapshot) => {
                let mut records = Vec::new();
                if let Some(group) = group {
                    self.changes_waiting.fetch_sub(group.changes.len(), Ordering::Relaxed);
                    self.state.group(&group, &mut records);
                }
                if let Some(snapshot) = snapshot {
                    self.state.snapshot(snapshot, &mut records);
                }
                #[cfg(feature = "otel")]
                self.hand_over_ends(&records);
                if !records.is_empty() {
                    self.events.push(records);
                }
            }
            FeedItem::Lost(last) => {
                tracing::warn!("the event feed fell behind and lost events; readers have to start again");
                // A reader that had all events before the lost ones must not find its id here.
                self.state.forget_jobs(last);
                self.events.reset(last);
            }
        }
    }

    #[cfg(feature = "otel")]
    fn hand_over_ends(&self, records: &[super::record::EventRecord]) {
        let Some(ends) = &self.ends else { return };
        for record in records.iter().filter(|record| record.kind == "job.ended") {
            if let super::record::Subject::Job(subject) = &record.subject
                && ends.try_send(subject.job).is_err()
            {
                self.state.metrics.traces_counted("dropped", 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Epoch, Timestamp, WorkerId};
    use scheduler::ids::GroupNo;
    use scheduler::step::Change;

    use super::*;
    use crate::events::EventFilter;

    fn group(number: u64) -> Option<Arc<Group>> {
        Some(Arc::new(Group {
            epoch: Epoch(1),
            number: GroupNo(number),
            at: Timestamp(0),
            definitions: Vec::new(),
            changes: vec![Change::WorkerForgotten(WorkerId(1))],
            notify: Arc::default(),
            loaded: None,
        }))
    }

    #[tokio::test]
    async fn reader_that_had_all_events_before_the_lost_ones_is_told() {
        let (mut sender, feed, events) = channel(FeedState::at(Epoch(1), GroupNo(0)));
        sender.publish(group(1), None);
        sender.changes_waiting.fetch_add(CHANGES_WAITING_MAX, Ordering::Relaxed);
        sender.publish(group(2), None);
        sender.publish(group(3), None);
        sender.changes_waiting.fetch_sub(CHANGES_WAITING_MAX, Ordering::Relaxed);
        sender.publish(None, Some(Arc::default()));
        sender.publish(group(4), None);
        drop(sender);
        feed.run().await;

        let id = |group, index| EventId { epoch: Epoch(1), group: GroupNo(group), index };
        let read = |after| events.read(Some(after), EventFilter::default()).unwrap();
        let gone = read(id(1, 1)).unwrap_err();
        assert_eq!((gone.after, gone.head), (id(1, 1), id(4, 1)));
        assert!(read(id(2, 1)).is_err(), "that event was lost");
        let mut reader = read(id(3, 0)).unwrap();
        let ids: Vec<_> = reader.next_selected().unwrap().iter().map(|record| record.id).collect();
        assert_eq!(ids, [id(4, 1)]);
    }
}
