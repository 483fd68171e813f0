//! Dependencies as the store has them, and what must hold for each change of one.

use std::collections::{BTreeMap, BTreeSet};

use protocol::JobId;
use scheduler::dependencies::{DependencyRow, LiveDependency};
use scheduler::step::Change;

use super::Disk;

/// Rows of dependencies, and what a start reads with them.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependencies {
    /// The jobs that each job comes after.
    rows: BTreeMap<JobId, BTreeMap<JobId, DependencyRow>>,
    /// Jobs that ended because they were skipped.
    skipped: BTreeSet<JobId>,
}

impl Disk {
    /// A job comes after another one, has learned how this one ended, or waits for no others any more.
    ///
    /// # Errors
    /// The other job has not ended so.
    pub(super) fn depend(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Dependency(row) => {
                let state = self.row(row.on).map(|on| on.state);
                if row.ended.is_some() && row.ended != state {
                    return Err(format!(
                        "job {} learns of job {}: {:?}, not {state:?}",
                        row.job, row.on, row.ended
                    ));
                }
                self.dependencies.rows.entry(row.job).or_default().insert(row.on, *row);
            }
            // An end that it never learned does not count.
            Change::DependenciesDropped { job, is_skipped } => {
                self.dependencies.skipped.extend(is_skipped.then_some(*job));
                if let Some(rows) = self.dependencies.rows.get_mut(job) {
                    rows.retain(|_, row| row.ended.is_some());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A job starts only after all jobs that it comes after have ended as it requires.
    ///
    /// # Errors
    /// One of them has not.
    pub(super) fn may_follow(&self, job: JobId) -> Result<(), String> {
        let met = |row: &DependencyRow| {
            let state = self.row(row.on).map(|on| on.state).filter(|state| state.has_ended());
            row.ended.is_some() && state.is_some_and(|state| row.requires.is_met_by(state))
        };
        let open = self.dependencies.rows.get(&job).and_then(|rows| rows.values().find(|row| !met(row)));
        match open {
            Some(row) => {
                Err(format!("I20 job {job} starts before job {} has {}", row.on, row.requires.name()))
            }
            None => Ok(()),
        }
    }

    /// A job waits for another one that has not ended.
    pub(crate) fn follows_a_live_job(&self, job: JobId) -> bool {
        let is_live = |row: &DependencyRow| self.row(row.on).is_some_and(|on| !on.state.has_ended());
        self.dependencies.rows.get(&job).is_some_and(|rows| rows.values().any(is_live))
    }

    pub(super) fn open_dependencies(&self) -> Vec<LiveDependency> {
        let is_open = |row: &&DependencyRow| row.ended.is_none_or(|state| !row.requires.is_met_by(state));
        let rows = self.dependencies.rows.values().flat_map(BTreeMap::values).filter(is_open);
        rows.map(|row| LiveDependency {
            job: row.job,
            on: row.on,
            requires: row.requires,
            state: row.ended.or_else(|| self.row(row.on).map(|on| on.state)),
            is_skipped: self.dependencies.skipped.contains(&row.on),
        })
        .collect()
    }
}
