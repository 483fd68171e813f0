//! One lane: those who came one by one, and runs of those who came together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Place;

/// Who waits in one lane, in order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    singles: BTreeSet<Place>,
    /// By their first places; none is empty. A run is taken over as it is, so that it costs the same however many are in it.
    runs: BTreeMap<Place, BTreeSet<Place>>,
}

impl Lane {
    pub(super) fn insert(&mut self, place: Place) {
        self.singles.insert(place);
    }

    pub(super) fn admit(&mut self, run: BTreeSet<Place>) {
        if let Some(first) = run.first() {
            self.runs.insert(*first, run);
        }
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        self.singles.remove(&place) || self.remove_from_run(place)
    }

    pub(super) fn first(&self) -> Option<Place> {
        let single = self.singles.first().copied();
        let run = self.runs.first_key_value().map(|(first, _)| *first);
        single.into_iter().chain(run).min()
    }

    /// The first ones in order, and at most so many.
    pub(super) fn firsts(&self, count: usize) -> Vec<Place> {
        let singles = self.singles.iter().take(count);
        let runs = self.runs.values().take(count).flat_map(|run| run.iter().take(count));
        let mut firsts: Vec<Place> = singles.chain(runs).copied().collect();
        firsts.sort_unstable();
        firsts.truncate(count);
        firsts
    }

    pub(super) fn contains(&self, place: Place) -> bool {
        self.singles.contains(&place) || self.run_of(place).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.singles.is_empty() && self.runs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.singles.len() + self.runs.values().map(BTreeSet::len).sum::<usize>()
    }

    /// Everybody, in order.
    pub(super) fn into_places(self) -> Vec<Place> {
        let mut places: Vec<Place> =
            self.singles.into_iter().chain(self.runs.into_values().flatten()).collect();
        places.sort_unstable();
        places
    }

    /// Whether every run is kept where its first place says.
    pub(super) fn is_in_order(&self) -> bool {
        self.runs.iter().all(|(first, run)| run.first() == Some(first))
    }

    fn remove_from_run(&mut self, place: Place) -> bool {
        let Some(mut run) = self.run_of(place).and_then(|first| self.runs.remove(&first)) else {
            return false;
        };
        run.remove(&place);
        self.admit(run);
        true
    }

    /// The run that holds this place, by its first one. Mostly the nearest: who came together is alike and stands together.
    fn run_of(&self, place: Place) -> Option<Place> {
        let mut before = self.runs.range(..=place).rev();
        before.find(|(_, run)| run.contains(&place)).map(|(first, _)| *first)
    }
}
