//! Counts the members of batches by state while a transaction changes their rows, and writes each batch once at its end: an update of the
//! batch with each row of a member would cost as much as the row.
//!
//! Triggers of the writing connection see every new row and every new state of a live job, whichever statement makes it. A job that ends
//! leaves the table of live jobs; the writer tells that itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, params_from_iter};

/// The codes of states are 1 to 10; zero stands for a job that is not there.
const STATES: usize = 11;

type Changes = BTreeMap<i64, [i64; STATES]>;

/// The changes of the present transaction, by batch.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberCounts(Arc<Mutex<Changes>>);

impl MemberCounts {
    /// Counts what this connection changes.
    pub(super) fn watch(connection: &Connection) -> rusqlite::Result<Self> {
        let counts = Self::default();
        let counted = counts.clone();
        connection.create_scalar_function("count_member", 3, FunctionFlags::SQLITE_UTF8, move |call| {
            counted.add(call.get(0)?, call.get(1)?, call.get(2)?);
            Ok(0_i64)
        })?;
        connection.execute_batch(
            "CREATE TEMP TRIGGER member_is_added AFTER INSERT ON main.jobs WHEN NEW.batch IS NOT NULL
             BEGIN SELECT count_member(NEW.batch, 0, NEW.state); END;
             CREATE TEMP TRIGGER member_moves AFTER UPDATE OF state ON main.jobs
             WHEN NEW.batch IS NOT NULL AND NEW.state <> OLD.state
             BEGIN SELECT count_member(NEW.batch, OLD.state, NEW.state); END;",
        )?;
        Ok(counts)
    }

    /// A member had this state and has another one now.
    pub(super) fn add(&self, batch: i64, from: i64, to: i64) {
        let mut changes = self.changes();
        let counts = changes.entry(batch).or_default();
        for (state, change) in [(from, -1), (to, 1)] {
            if let Some(count) = usize::try_from(state).ok().and_then(|state| counts.get_mut(state)) {
                *count += change;
            }
        }
    }

    /// Forgets what a transaction changed that was rolled back.
    pub(super) fn clear(&self) {
        self.changes().clear();
    }

    /// Writes the changes of the transaction.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for (batch, counts) in std::mem::take(&mut *self.changes()) {
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

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
