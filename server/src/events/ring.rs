//! The last events, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::id::EventId;
use super::record::EventRecord;

/// Events that are kept.
pub(super) const EVENTS_MAX: usize = 100_000;
/// Bytes of all kept events together, estimated.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// The last events, oldest first. Each has a position that counts up from the start of the server.
#[derive(Debug)]
pub(super) struct Ring {
    kept: VecDeque<Arc<EventRecord>>,
    bytes: usize,
    /// The position of the first kept event.
    first: u64,
    /// The id before the first kept event: nothing after it is missing.
    before_first: EventId,
    /// The id of the last event; `before_first` if there is none.
    head: EventId,
    events_max: usize,
}

impl Ring {
    /// An empty ring after this id.
    pub(super) const fn new(before_first: EventId, events_max: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, first: 0, before_first, head: before_first, events_max }
    }

    /// Adds the next event. The oldest ones make room.
    pub(super) fn push(&mut self, record: EventRecord) {
        self.head = record.id;
        self.bytes += record.bytes;
        self.kept.push_back(Arc::new(record));
        while self.kept.len() > self.events_max || (self.bytes > BYTES_MAX && self.kept.len() > 1) {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.bytes;
            self.first += 1;
            self.before_first = oldest.id;
        }
    }

    /// Forgets everything: events up to this id may be missing.
    pub(super) fn reset(&mut self, head: EventId) {
        // A reader at the old end must not take the new before_first for its own position.
        self.first = self.end() + 1;
        self.kept.clear();
        (self.bytes, self.before_first, self.head) = (0, head, head);
    }

    /// The id of the last event.
    pub(super) const fn head(&self) -> EventId {
        self.head
    }

    /// The position after the last event.
    pub(super) fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// The position after an event; `None` if later ones are missing here, or the id was never given.
    pub(super) fn position_after(&self, id: EventId) -> Option<u64> {
        if id < self.before_first || id > self.head {
            return None;
        }
        Some(self.first + self.kept.partition_point(|record| record.id <= id) as u64)
    }

    /// Up to `count` events from this position on; `None` if the first of them is gone.
    pub(super) fn from(&self, position: u64, count: usize) -> Option<Vec<Arc<EventRecord>>> {
        let skipped = usize::try_from(position.checked_sub(self.first)?).ok()?;
        Some(self.kept.iter().skip(skipped).take(count).cloned().collect())
    }

    /// Up to `count` events before this position, the newest first.
    pub(super) fn before(&self, position: u64, count: usize) -> Vec<Arc<EventRecord>> {
        let end = usize::try_from(position.saturating_sub(self.first)).unwrap_or(0).min(self.kept.len());
        self.kept.range(end.saturating_sub(count)..end).rev().cloned().collect()
    }

    /// The number of kept events.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Epoch, Timestamp};
    use scheduler::ids::GroupNo;

    use super::*;
    use crate::events::record::Subject;

    fn id(group: u64) -> EventId {
        EventId { epoch: Epoch(1), group: GroupNo(group), index: 1 }
    }

    fn ring(events: u64, events_max: usize) -> Ring {
        let mut ring = Ring::new(id(0), events_max);
        for group in 1..=events {
            let subject = Subject::Batch { first: protocol::JobId(1), count: 1, name: None };
            ring.push(EventRecord::new(id(group), Timestamp(0), "batch.accepted", subject));
        }
        ring
    }

    fn groups(events: &[Arc<EventRecord>]) -> Vec<u64> {
        events.iter().map(|record| record.id.group.0).collect()
    }

    #[test]
    fn a_reader_resumes_behind_any_id_from_the_floor_to_the_head() {
        let ring = ring(5, 3);
        assert_eq!(ring.position_after(id(1)), None, "event 2 is gone");
        for (last, next) in [(2, vec![3, 4, 5]), (3, vec![4, 5]), (5, vec![])] {
            let position = ring.position_after(id(last)).unwrap();
            assert_eq!(groups(&ring.from(position, 10).unwrap()), next, "after {last}");
        }
        assert_eq!(ring.position_after(id(6)), None, "that id was never given");
        assert_eq!((ring.head(), ring.end(), ring.len()), (id(5), 5, 3));
    }

    #[test]
    fn a_reader_that_falls_behind_the_floor_is_noticed() {
        let mut ring = ring(2, 3);
        let position = ring.position_after(id(0)).unwrap();
        assert_eq!(groups(&ring.from(position, 1).unwrap()), [1]);
        for group in 3..=5 {
            let subject = Subject::Batch { first: protocol::JobId(1), count: 1, name: None };
            ring.push(EventRecord::new(id(group), Timestamp(0), "batch.accepted", subject));
        }
        assert!(ring.from(position, 1).is_none());
        let end = ring.end();
        ring.reset(id(9));
        assert!(ring.from(end, 1).is_none(), "events may be missing between the old end and the reset");
        assert_eq!((ring.position_after(id(5)), ring.position_after(id(9))), (None, Some(end + 1)));
    }

    #[test]
    fn events_before_a_position_come_newest_first() {
        let ring = ring(5, 3);
        assert_eq!(groups(&ring.before(ring.end(), 2)), [5, 4]);
        assert_eq!(groups(&ring.before(3, 9)), [3]);
        assert_eq!(groups(&ring.before(0, 9)), Vec::<u64>::new());
    }
}
