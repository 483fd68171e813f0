//! Counts the members of batches by state while a transaction changes their rows, and writes each batch once at its end: an update of the
//! batch with each row of a member would cost as much as the row.
//!
//! The members of a batch have consecutive numbers from that of the batch on, so the batch of a job is found without reading the job's row.
//! Triggers would see each change by themselves, but they nearly double the cost of every write to a live job: each statement that may fire one
//! needs a journal of its own.

use std::collections::BTreeMap;

use rusqlite::{Connection, params_from_iter};

/// The codes of states are 1 to 10; [`NO_ROW`] stands for a job that is not there.
const STATES: usize = 11;
/// A job that is not there yet.
pub(super) const NO_ROW: i64 = 0;

/// The changes of the present transaction, by batch.
#[derive(Debug, Default)]
pub(super) struct MemberCounts {
    changes: BTreeMap<i64, [i64; STATES]>,
    /// The first and the last member of each batch that has not ended, once somebody has asked.
    live: Option<BTreeMap<i64, i64>>,
}

impl MemberCounts {
    /// A batch begins.
    pub(super) fn begin(&mut self, first: i64, count: u32) {
        if let Some(live) = &mut self.live {
            live.insert(first, last_member(first, count));
        }
    }

    /// All members of a batch have ended.
    pub(super) fn end(&mut self, first: i64) {
        if let Some(live) = &mut self.live {
            live.remove(&first);
        }
    }

    /// The batch of a job, if it is a member of one that has not ended.
    pub(super) fn batch_of(&mut self, connection: &Connection, job: i64) -> rusqlite::Result<Option<i64>> {
        let live = match &self.live {
            Some(live) => live,
            None => self.live.insert(live(connection)?),
        };
        Ok(live.range(..=job).next_back().filter(|(_, last)| **last >= job).map(|(first, _)| *first))
    }

    /// A member had this state and has another one now.
    pub(super) fn add(&mut self, batch: i64, from: i64, to: i64) {
        let counts = self.changes.entry(batch).or_default();
        for (state, change) in [(from, -1), (to, 1)] {
            if let Some(count) = usize::try_from(state).ok().and_then(|state| counts.get_mut(state)) {
                *count += change;
            }
        }
    }

    /// Writes the changes of the transaction.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        for (batch, counts) in std::mem::take(&mut self.changes) {
            let values = [batch].into_iter().chain(counts.into_iter().skip(1));
            connection
                .prepare_cached(
                    "UPDATE batches SET scheduled = scheduled + ?2, queued = queued + ?3, assigned = assigned + ?4,
                         running = running + ?5, quarantined = quarantined + ?6, succeeded = succeeded + ?7,
                         failed = failed + ?8, cancelled = cancelled + ?9, expired = expired + ?10, lost = lost + ?11
                     WHERE id = ?1",
                )?
                .execute(params_from_iter(values))?;
        }
        Ok(())
    }
}

fn live(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, i64>> {
    let mut statement = connection.prepare_cached("SELECT id, count FROM batches WHERE ended_at IS NULL")?;
    let range = |row: &rusqlite::Row<'_>| {
        let first = row.get(0)?;
        Ok((first, last_member(first, row.get(1)?)))
    };
    statement.query_map([], range)?.collect()
}

fn last_member(first: i64, count: u32) -> i64 {
    first.saturating_add(i64::from(count)).saturating_sub(1)
}
