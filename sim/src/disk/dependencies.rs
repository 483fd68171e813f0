//! Dependencies as the store has them, and what must hold for each change of one.

use std::collections::{BTreeMap, BTreeSet};

use protocol::JobId;
use scheduler::dependencies::{DependencyRow, LiveDependency, PredecessorId};
use scheduler::job::State;
use scheduler::step::Change;

use super::Disk;

/// Rows of dependencies, and what a start reads with them.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependencies {
    /// The jobs and batches that each job comes after.
    rows: BTreeMap<JobId, BTreeMap<PredecessorId, DependencyRow>>,
    /// Jobs that ended because they were skipped.
    skipped: BTreeSet<JobId>,
}

impl Disk {
    /// A job comes after another one or a batch, has learned how this one ended, or waits for no others any more.
    ///
    /// # Errors
    /// The other job has not ended so.
    pub(super) fn depend(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Dependency(row) => {
                let state = self.state_of(row.on);
                if row.ended.is_some() && row.ended != state {
                    return Err(format!(
                        "job {} learns of {}: {:?}, not {state:?}",
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

    /// The state of a job, or the one in which a batch ended.
    fn state_of(&self, on: PredecessorId) -> Option<State> {
        match on {
            PredecessorId::Job(job) => self.row(job).map(|row| row.state),
            PredecessorId::Batch(first) => self.batches.end_of(first),
        }
    }

    /// A batch that jobs can come after, and its state if it has ended: the one with the highest number.
    pub(crate) fn last_batch(&self) -> Option<(JobId, Option<State>)> {
        let hidden = self.forming.as_ref().map_or(JobId(u64::MAX), |(numbers, _)| JobId(numbers.start));
        let first = self.batches.last_before(hidden)?;
        Some((first, self.batches.end_of(first)))
    }

    /// The latest batch that has not ended.
    pub(crate) fn last_live_batch(&self) -> Option<JobId> {
        self.batches.last_live()
    }

    /// The batch of a job, if it has not ended.
    pub(crate) fn batch_of(&self, job: JobId) -> Option<JobId> {
        self.batches.of(job)
    }

    /// A job starts only after all jobs and batches that it comes after have ended as it requires.
    ///
    /// # Errors
    /// One of them has not.
    pub(super) fn may_follow(&self, job: JobId) -> Result<(), String> {
        let met = |row: &DependencyRow| {
            let state = self.state_of(row.on).filter(|state| state.has_ended());
            row.ended.is_some() && state.is_some_and(|state| row.requires.is_met_by(state))
        };
        let open = self.dependencies.rows.get(&job).and_then(|rows| rows.values().find(|row| !met(row)));
        match open {
            Some(row) => Err(format!("I20 job {job} starts before {} has {}", row.on, row.requires.name())),
            None => Ok(()),
        }
    }

    /// A job waits for another one, or for a batch, that has not ended.
    pub(crate) fn follows_a_live_job(&self, job: JobId) -> bool {
        let is_live = |row: &DependencyRow| match row.on {
            PredecessorId::Job(job) => self.row(job).is_some_and(|on| !on.state.has_ended()),
            PredecessorId::Batch(first) => self.batches.is_live(first),
        };
        self.dependencies.rows.get(&job).is_some_and(|rows| rows.values().any(is_live))
    }

    pub(super) fn open_dependencies(&self) -> Vec<LiveDependency> {
        let is_open = |row: &&DependencyRow| row.ended.is_none_or(|state| !row.requires.is_met_by(state));
        let rows = self.dependencies.rows.values().flat_map(BTreeMap::values).filter(is_open);
        rows.map(|row| LiveDependency {
            job: row.job,
            on: row.on,
            requires: row.requires,
            state: row.ended.or_else(|| self.state_of(row.on)),
            is_skipped: row.on.job().is_some_and(|job| self.dependencies.skipped.contains(&job)),
        })
        .collect()
    }
}
