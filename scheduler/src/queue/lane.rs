//! One lane: jobs that arrived one by one, and runs of jobs that became visible together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Parked, QueueKey};

/// The waiting jobs of one lane, in order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    singles: BTreeSet<QueueKey>,
    /// Runs by their first key; none is empty. A run is added as it is, at the same cost whatever its length.
    runs: BTreeMap<QueueKey, BTreeSet<QueueKey>>,
    /// Number of the keys in runs, so that nobody has to count them.
    in_runs: usize,
    /// When it had its turn last, or began to wait.
    pub(super) turn: u64,
    /// The reason why it is not looked at.
    pub(super) parked: Option<Parked>,
}

/// The state of a lane with jobs: what decides its position in the order of all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneState {
    /// The key of its first job.
    pub(super) head: QueueKey,
    pub(super) turn: u64,
    pub(super) parked: Option<Parked>,
}

impl Lane {
    pub(super) fn at_turn(turn: u64, parked: Option<Parked>) -> Self {
        Self { turn, parked, ..Self::default() }
    }

    /// Absent if it has no job.
    pub(super) fn state(&self) -> Option<LaneState> {
        Some(LaneState { head: self.first()?, turn: self.turn, parked: self.parked })
    }

    pub(super) fn insert(&mut self, key: QueueKey) {
        self.singles.insert(key);
    }

    pub(super) fn push_run(&mut self, run: BTreeSet<QueueKey>) {
        if let Some(first) = run.first() {
            self.in_runs += run.len();
            self.runs.insert(*first, run);
        }
    }

    /// Returns false if the key was not there.
    pub(super) fn remove(&mut self, key: QueueKey) -> bool {
        self.singles.remove(&key) || self.remove_from_run(key)
    }

    pub(super) fn first(&self) -> Option<QueueKey> {
        let single = self.singles.first().copied();
        let run = self.runs.first_key_value().map(|(first, _)| *first);
        single.into_iter().chain(run).min()
    }

    /// The first keys in order, at most `count`.
    pub(super) fn first_keys(&self, count: usize) -> Vec<QueueKey> {
        let singles = self.singles.iter().take(count);
        let runs = self.runs.values().take(count).flat_map(|run| run.iter().take(count));
        let mut first_keys: Vec<QueueKey> = singles.chain(runs).copied().collect();
        first_keys.sort_unstable();
        first_keys.truncate(count);
        first_keys
    }

    pub(super) fn contains(&self, key: QueueKey) -> bool {
        self.singles.contains(&key) || self.run_of(key).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.singles.is_empty() && self.runs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.singles.len() + self.in_runs
    }

    /// Number of keys before this one; `max` if there are more. Costs as much as it returns: each run that is looked at has such a key.
    pub(super) fn count_before(&self, key: QueueKey, max: usize) -> usize {
        let in_runs = self.runs.range(..key).flat_map(|(_, run)| run.range(..key));
        self.singles.range(..key).chain(in_runs).take(max).count()
    }

    /// All keys, in order.
    pub(super) fn into_keys(self) -> Vec<QueueKey> {
        let mut keys: Vec<QueueKey> =
            self.singles.into_iter().chain(self.runs.into_values().flatten()).collect();
        keys.sort_unstable();
        keys
    }

    /// Every run is stored under its first key, and the number of keys in runs is right.
    pub(super) fn is_in_order(&self) -> bool {
        self.runs.iter().all(|(first, run)| run.first() == Some(first))
            && self.runs.values().map(BTreeSet::len).sum::<usize>() == self.in_runs
    }

    fn remove_from_run(&mut self, key: QueueKey) -> bool {
        let Some(mut run) = self.run_of(key).and_then(|first| self.runs.remove(&first)) else {
            return false;
        };
        self.in_runs -= run.len();
        run.remove(&key);
        self.push_run(run);
        true
    }

    /// The first key of the run that contains this key. Mostly it is the nearest run, because jobs of a run
    /// have consecutive keys.
    fn run_of(&self, key: QueueKey) -> Option<QueueKey> {
        let mut before = self.runs.range(..=key).rev();
        before.find(|(_, run)| run.contains(&key)).map(|(first, _)| *first)
    }
}
