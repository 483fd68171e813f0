//! The cursors of schedules in their order. The latest one lies in the future after the wall clock was set back.

use alloc::collections::{BTreeMap, BTreeSet};

use protocol::Timestamp;

use crate::ids::ScheduleNo;
use crate::schedules::ScheduleRow;

/// Cursors, by their schedules and in order.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    of: BTreeMap<ScheduleNo, Timestamp>,
    in_order: BTreeSet<(Timestamp, ScheduleNo)>,
}

impl Cursors {
    /// Replaces the cursor of a schedule; none if jobs.yaml does not have it.
    pub(crate) fn put(&mut self, number: ScheduleNo, cursor: Option<Timestamp>) {
        let before = match cursor {
            Some(cursor) => self.of.insert(number, cursor),
            None => self.of.remove(&number),
        };
        if before == cursor {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, number));
        }
        if let Some(cursor) = cursor {
            self.in_order.insert((cursor, number));
        }
    }

    /// The latest of all.
    pub(crate) fn latest(&self) -> Option<Timestamp> {
        self.in_order.last().map(|(cursor, _)| *cursor)
    }
}

impl ScheduleRow {
    /// The cursor, if the wall clock was set back behind it: the schedule fires nothing until then.
    #[must_use]
    pub fn decided_until(&self, now: Timestamp) -> Option<Timestamp> {
        ahead_of(self.cursor, now)
    }
}

/// The cursor, if it is so far ahead of the wall clock that the clock was set back. Corrections by a time service are smaller.
pub(crate) fn ahead_of(cursor: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (cursor.0.saturating_sub(now.0) > AHEAD_MIN).then_some(cursor)
}

/// Milliseconds that a cursor is ahead of the clock at least.
const AHEAD_MIN: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_cursor_follows_changes_and_removals() {
        let mut cursors = Cursors::default();
        assert_eq!(cursors.latest(), None);
        cursors.put(ScheduleNo(1), Some(Timestamp(5)));
        cursors.put(ScheduleNo(2), Some(Timestamp(9)));
        cursors.put(ScheduleNo(2), Some(Timestamp(9)));
        assert_eq!(cursors.latest(), Some(Timestamp(9)));
        cursors.put(ScheduleNo(1), Some(Timestamp(12)));
        assert_eq!(cursors.latest(), Some(Timestamp(12)));
        cursors.put(ScheduleNo(1), None);
        assert_eq!(cursors.latest(), Some(Timestamp(9)));
    }

    #[test]
    fn small_corrections_of_the_clock_are_not_ahead() {
        assert_eq!(ahead_of(Timestamp(60_000), Timestamp(0)), None);
        assert_eq!(ahead_of(Timestamp(60_001), Timestamp(0)), Some(Timestamp(60_001)));
    }
}
