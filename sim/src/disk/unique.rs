//! Unique keys as the store has them, and what must hold for each change of one.

use std::collections::BTreeMap;

use protocol::order::StopCause;
use scheduler::unique::{UniqueHolder, UniqueId, UniqueRow};

use super::{Disk, Row};

/// The holder of each key that is taken.
pub(super) type UniqueKeys = BTreeMap<UniqueId, UniqueHolder>;

impl Disk {
    /// A key has another holder, or is free. The job that loses it has ended, or is being cancelled and is waited for.
    ///
    /// # Errors
    /// Two live jobs would have the key.
    pub(super) fn claim(&mut self, row: &UniqueRow) -> Result<(), String> {
        let Some(holder) = row.holder else {
            self.unique.remove(&row.id);
            return Ok(());
        };
        self.row_mut(holder.job).ok_or("a job that does not exist has a key")?.unique = Some(row.id.clone());
        self.unique.insert(row.id.clone(), holder);
        let is_other = |row: &&Row, id| !row.state.has_ended() && row.unique.as_ref() == Some(id);
        let others = self.rows().filter(|(job, it)| *job != holder.job && is_other(it, &row.id));
        for (job, other) in others {
            let stopping = other.latest.as_ref().and_then(|latest| latest.stopping);
            let stopping = stopping.or(self.is_cancelled_parent(job).then_some(StopCause::Cancel));
            // The one that ends with this very change is still there.
            let is_ending = holder.predecessor.is_none() && stopping == Some(StopCause::Cancel);
            let is_waited_for = holder.predecessor == Some(job) && stopping == Some(StopCause::Cancel);
            let is_replacement = other.current().is_none()
                && (self.is_parent(holder.job)
                    || self.row(holder.job).is_some_and(|it| it.current().is_some()));
            if !is_ending && !is_waited_for && !is_replacement {
                return Err(format!("I16 jobs {} and {job} have the same unique key", holder.job));
            }
        }
        Ok(())
    }

    /// The keys for a start of the server.
    pub(super) fn unique_rows(&self) -> Vec<UniqueRow> {
        let row =
            |(id, holder): (&UniqueId, &UniqueHolder)| UniqueRow { id: id.clone(), holder: Some(*holder) };
        self.unique.iter().map(row).collect()
    }
}
