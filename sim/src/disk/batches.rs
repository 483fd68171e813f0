//! Batches as they are stored. What they count is counted anew from the rows of their members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::JobId;
use scheduler::batches::{LiveBatch, NewBatch};
use scheduler::job::State;
use scheduler::pauses::PauseChange;
use scheduler::step::Change;

use super::Row;

/// Batches by their first members.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    /// Those that have not ended.
    live: BTreeMap<JobId, NewBatch>,
    /// The unique keys of all batches that have or had one.
    keys: BTreeMap<JobId, Arc<str>>,
    /// Those that lost their unique keys to others.
    replaced: BTreeSet<JobId>,
    /// Those that were cancelled as a whole, with the requester.
    cancelled: BTreeMap<JobId, Arc<str>>,
    /// The states of those that have ended.
    ended: BTreeMap<JobId, State>,
}

type Rows = [Option<Row>];

impl Batches {
    /// A batch is new, was cancelled, or has ended.
    ///
    /// # Errors
    /// The counts of an ended batch are not those of its members.
    pub(super) fn take(&mut self, change: &Change, rows: &Rows) -> Result<(), String> {
        match change {
            Change::BatchAdded(batch) => {
                if let Some(key) = batch.options.unique_key() {
                    self.keys.insert(batch.first, key);
                }
                self.live.insert(batch.first, batch.clone());
            }
            Change::BatchReplaced { first, by } => {
                let is_first = self.replaced.insert(*first);
                let key = self.keys.get(first);
                if !is_first || key.is_none() || key != self.keys.get(by) || !self.live.contains_key(first) {
                    return Err(format!(
                        "I31 the batch of job {first} is replaced by that of job {by}: it has ended, was before, or has another key"
                    ));
                }
            }
            Change::BatchCancelled { first, by, .. } => {
                let is_first = self.cancelled.insert(*first, by.clone()).is_none();
                if !is_first || !self.live.contains_key(first) {
                    return Err(format!(
                        "the batch of job {first} is cancelled, and has ended or was before"
                    ));
                }
            }
            Change::BatchChanged { first, limits } => {
                let batch =
                    self.live.get_mut(first).ok_or_else(|| format!("there is no batch of job {first}"))?;
                batch.options.max_failures = limits.max_failures;
                batch.options.concurrency = limits.concurrency;
            }
            Change::BatchEnded { first, failed, state, .. } => {
                let batch =
                    self.live.remove(first).ok_or_else(|| format!("there is no batch of job {first}"))?;
                let counted = count(&batch, rows);
                if counted.live > 0 || counted.failed != *failed || counted.end_state() != *state {
                    return Err(format!(
                        "the batch of job {first} ended {} with {failed} failures: {counted:?}",
                        state.name()
                    ));
                }
                if self.ended.insert(*first, *state).is_some() {
                    return Err(format!("the batch of job {first} ended twice"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The limit of a batch is another one: its members need it from now on.
    pub(super) fn limit_members(&self, first: JobId, rows: &mut Rows) {
        let limit = self.limit_of(first);
        let members = self.live.get(&first).map_or(0, |batch| batch.count) as usize;
        for row in rows.iter_mut().skip(first.0 as usize - 1).take(members).flatten() {
            row.limited_by = limit;
        }
    }

    /// Somebody pauses a batch that has not ended, or its pause is over: with the batch, or before.
    ///
    /// # Errors
    /// The batch has ended, or has not.
    pub(super) fn pause(&self, first: JobId, pause: &PauseChange, rows: &mut Rows) -> Result<(), String> {
        let batch = self.live.get(&first);
        if batch.is_none() != matches!(pause, PauseChange::BatchEnded) {
            return Err(format!("the batch of job {first}, {batch:?}, is paused: {pause:?}"));
        }
        let members = batch.map_or(0, |batch| batch.count) as usize;
        for row in rows.iter_mut().skip(first.0 as usize - 1).take(members).flatten() {
            row.batch_paused = pause.in_force().is_some();
        }
        Ok(())
    }

    /// Forgets a batch that was never finished.
    pub(super) fn forget(&mut self, first: JobId) {
        self.live.remove(&first);
        self.keys.remove(&first);
    }

    /// Of the batches that have not ended, at most one has a key, and those that were replaced are cancelled. `forming` is the batch that is
    /// being made, and has none yet.
    ///
    /// # Errors
    /// It is otherwise after a commit.
    pub(super) fn check_keys(&self, forming: Option<JobId>) -> Result<(), String> {
        let mut holders = BTreeMap::new();
        for first in self.live.keys().filter(|first| Some(**first) != forming) {
            let Some(key) = self.keys.get(first) else { continue };
            if self.replaced.contains(first) {
                if !self.cancelled.contains_key(first) {
                    return Err(format!("I31 the batch of job {first} was replaced, and is not cancelled"));
                }
            } else if let Some(other) = holders.insert(key, first) {
                return Err(format!("I31 the batches of jobs {other} and {first} have the unique key {key}"));
            }
        }
        Ok(())
    }

    /// The batch has not ended.
    pub(super) fn is_live(&self, first: JobId) -> bool {
        self.live.contains_key(&first)
    }

    /// The latest batch that has not ended.
    pub(super) fn last_live(&self) -> Option<JobId> {
        self.live.keys().next_back().copied()
    }

    /// The state in which a batch ended.
    pub(super) fn end_of(&self, first: JobId) -> Option<State> {
        self.ended.get(&first).copied()
    }

    /// The batch with the highest number below `before`.
    pub(super) fn last_before(&self, before: JobId) -> Option<JobId> {
        let live = self.live.range(..before).next_back().map(|(first, _)| *first);
        let ended = self.ended.range(..before).next_back().map(|(first, _)| *first);
        live.max(ended)
    }

    /// The batches as a start takes them in.
    pub(super) fn live(&self, rows: &Rows) -> impl Iterator<Item = LiveBatch> {
        self.live.values().map(|batch| {
            let cancelled_by = self.cancelled.get(&batch.first).cloned();
            let counted = count(batch, rows);
            let unique_key = counted.unique_key.clone().filter(|_| !self.replaced.contains(&batch.first));
            LiveBatch { cancelled_by, unique_key, ..counted }
        })
    }

    /// The batch of a job, if it has not ended.
    pub(super) fn of(&self, job: JobId) -> Option<JobId> {
        let (first, batch) = self.live.range(..=job).next_back()?;
        (job.0 < first.0 + u64::from(batch.count)).then_some(*first)
    }

    /// The job belongs to a batch in which as many failed as may, or that was cancelled.
    pub(super) fn is_stopped(&self, job: JobId, rows: &Rows) -> bool {
        if self.of(job).is_some_and(|first| self.cancelled.contains_key(&first)) {
            return true;
        }
        let batch = self.live.range(..=job).next_back().map(|(_, batch)| batch);
        let batch = batch.filter(|batch| batch.options.max_failures.is_some());
        batch.map(|batch| count(batch, rows)).is_some_and(|it| job < it.end() && it.is_stopped())
    }
}

impl Batches {
    /// The batch of a job and its limit, if it limits how many of its members hold a worker.
    pub(super) fn limit_of(&self, job: JobId) -> Option<(JobId, usize)> {
        let (first, batch) = self.live.range(..=job).next_back()?;
        let is_member = job.0 < first.0 + u64::from(batch.count);
        Some((*first, batch.options.concurrency.filter(|_| is_member)? as usize))
    }

    /// A member may hold a worker: fewer others of its batch do than may.
    ///
    /// # Errors
    /// As many do.
    pub(super) fn check_permit(&self, job: JobId, rows: &Rows) -> Result<(), String> {
        let Some((first, limit)) = self.limit_of(job) else { return Ok(()) };
        let members = rows.iter().flatten().filter(|row| row.limited_by == Some((first, limit)));
        let holding = members.filter(|row| row.current().is_some()).count();
        match holding >= limit {
            true => Err(format!("I14 job {job} is one too many of {limit} of the batch of job {first}")),
            false => Ok(()),
        }
    }
}

fn count(batch: &NewBatch, rows: &Rows) -> LiveBatch {
    let from = batch.first.0 as usize - 1;
    let members = rows.iter().skip(from).take(batch.count as usize).flatten();
    let mut counted = LiveBatch { live: 0, ..LiveBatch::new(batch) };
    for row in members {
        counted.live += u32::from(!row.state.has_ended());
        counted.failed += u32::from(row.state.is_failure());
        counted.cancelled += u32::from(row.state == State::Cancelled);
        counted.skipped += u32::from(row.skipped);
    }
    counted
}
