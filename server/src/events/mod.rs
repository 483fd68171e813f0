//! Events: every committed change, in order, for readers of `GET /api/events`.
//!
//! The engine hands each committed group to [`EventSender`]: one `Arc`, whatever is in it. A task of its own ([`EventFeed`]) makes events of
//! the changes and keeps the last ones in a ring. Readers take them from there, each at its own pace; a reader that is too slow finds its
//! place gone. Nothing here can hold up a commit. `http::present::event` writes the JSON.

mod feed;
mod feed_state;
pub(crate) mod filter;
mod id;
mod job_events;
mod live_jobs;
mod record;
mod ring;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use feed::{EventFeed, EventSender, channel, with_capacity};
pub use feed_state::FeedState;
pub use filter::EventFilter;
pub use id::EventId;
pub use record::{
    AcceptedSubject, AttemptEnd, AttemptSubject, DefinitionRef, EndSubject, EventRecord, JobSubject, KINDS,
    Subject, WorkerName,
};
use ring::Ring;

/// Readers at once. Each holds a connection, and is woken by every group.
pub const READERS_MAX: usize = 1_024;
/// Events that a reader looks at while it holds the ring.
const READ_AT_ONCE: usize = 256;

/// The kept events. Clones share them.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    end: watch::Sender<u64>,
    readers: AtomicUsize,
}

/// As many readers as are allowed.
#[derive(Debug, thiserror::Error)]
#[error("too many readers of events")]
pub struct TooManyReaders;

/// The next events are not kept any more: the reader was too slow, or the event feed has lost some.
#[derive(Debug, thiserror::Error)]
#[error("events after {after} are not kept any more")]
pub struct EventsGone {
    /// The last event that the reader had.
    pub after: EventId,
    /// The last event there is: a reader that has read the lists again can go on after it.
    pub head: EventId,
}

impl Events {
    fn new(head: EventId, events_max: usize) -> Self {
        let (ring, end) = (Mutex::new(Ring::new(head, events_max)), watch::Sender::new(0));
        Self(Arc::new(Shared { ring, end, readers: AtomicUsize::new(0) }))
    }

    /// The id of the last event.
    #[must_use]
    pub fn head(&self) -> EventId {
        self.ring().head()
    }

    /// The number of readers.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.0.readers.load(Ordering::Relaxed)
    }

    /// The number of kept events.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.ring().len()
    }

    /// Begins to read after this event, or after the last one.
    ///
    /// # Errors
    /// There are too many readers; or later events are missing.
    pub fn read(
        &self,
        after: Option<EventId>,
        filter: EventFilter,
    ) -> Result<Result<EventReader, EventsGone>, TooManyReaders> {
        if self.0.readers.fetch_add(1, Ordering::Relaxed) >= READERS_MAX {
            self.0.readers.fetch_sub(1, Ordering::Relaxed);
            return Err(TooManyReaders);
        }
        let guard = ReaderGuard(self.clone());
        let changed = self.0.end.subscribe();
        let ring = self.ring();
        let head = ring.head();
        let last = after.unwrap_or(head);
        let Some(position) = ring.position_after(last) else {
            return Ok(Err(EventsGone { after: last, head }));
        };
        drop(ring);
        Ok(Ok(EventReader { position, last, changed, filter, guard }))
    }

    fn push(&self, records: impl IntoIterator<Item = EventRecord>) {
        let mut ring = self.ring();
        records.into_iter().for_each(|record| ring.push(record));
        let end = ring.end();
        drop(ring);
        self.0.end.send_replace(end);
    }

    fn reset(&self, head: EventId) {
        let mut ring = self.ring();
        ring.reset(head);
        let end = ring.end();
        drop(ring);
        self.0.end.send_replace(end);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a reader while it exists.
#[derive(Debug)]
struct ReaderGuard(Events);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads events in order, without gap or repeat.
#[derive(Debug)]
pub struct EventReader {
    position: u64,
    last: EventId,
    changed: watch::Receiver<u64>,
    filter: EventFilter,
    guard: ReaderGuard,
}

impl EventReader {
    /// The last event that was looked at, whether it was selected or not: a reader resumes after it.
    #[must_use]
    pub const fn last(&self) -> EventId {
        self.last
    }

    /// Goes back until `count` selected events are ahead, or to the oldest event.
    pub fn rewind(&mut self, count: usize) {
        let events = &self.guard.0;
        let mut left = count;
        while left > 0 {
            let chunk = events.ring().before(self.position, READ_AT_ONCE);
            if chunk.is_empty() {
                break;
            }
            for record in &chunk {
                if left == 0 {
                    return;
                }
                left -= usize::from(self.filter.selects(record));
                self.position -= 1;
            }
        }
    }

    /// The selected ones of the next events; none if there are no more at the moment.
    ///
    /// # Errors
    /// The next events are gone.
    pub fn next_selected(&mut self) -> Result<Vec<Arc<EventRecord>>, EventsGone> {
        loop {
            let chunk = {
                let ring = self.guard.0.ring();
                let gone = || EventsGone { after: self.last, head: ring.head() };
                ring.from(self.position, READ_AT_ONCE).ok_or_else(gone)?
            };
            let Some(last) = chunk.last() else { return Ok(Vec::new()) };
            self.last = last.id;
            self.position += chunk.len() as u64;
            let selected: Vec<_> = chunk.into_iter().filter(|it| self.filter.selects(it)).collect();
            if !selected.is_empty() {
                return Ok(selected);
            }
        }
    }

    /// Counts the selected ones of the next events, and goes on after them. A reader that was too slow also counts those that it did not
    /// select, and those that are gone.
    pub fn count_selected(&mut self) -> u64 {
        let mut count = 0;
        while !self.filter.selects_all() {
            match self.next_selected() {
                Ok(selected) if selected.is_empty() => return count,
                Ok(selected) => count += selected.len() as u64,
                Err(_) => break,
            }
        }
        count + self.pass_all()
    }

    /// Goes on after the last event; returns how many were passed.
    fn pass_all(&mut self) -> u64 {
        let ring = self.guard.0.ring();
        let passed = ring.end().saturating_sub(self.position);
        (self.position, self.last) = (ring.end(), ring.head());
        passed
    }

    /// Waits until there may be more events.
    ///
    /// # Cancel safety
    /// Dropping the future forgets nothing.
    pub async fn changed(&mut self) {
        // The sender lives as long as the ring, which this reader holds.
        let _ = self.changed.changed().await;
    }
}
