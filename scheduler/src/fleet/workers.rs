//! The table of workers: one is found by hash, and all are walked in the order of their ids.
//!
//! A decision finds its worker a dozen times. With a fleet of thousands, each search in an ordered map would read memory that is in no cache.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use protocol::WorkerId;

use super::Worker;
use crate::table::{Seed, Table};

/// Workers by id.
#[derive(Debug)]
pub(super) struct Workers {
    by_id: Table<WorkerId, Box<Worker>>,
    ids: BTreeSet<WorkerId>,
}

impl Workers {
    pub(super) fn new(seed: Seed) -> Self {
        Self { by_id: Table::with_hasher(seed), ids: BTreeSet::new() }
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    pub(super) fn insert(&mut self, worker: Worker) {
        let id = worker.row.worker;
        self.ids.insert(id);
        self.by_id.insert(id, Box::new(worker));
    }

    pub(super) fn remove(&mut self, id: WorkerId) -> Option<Worker> {
        self.ids.remove(&id);
        self.by_id.remove(&id).map(|worker| *worker)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All workers, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.ids.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// All workers in no particular order, to change each of them in the same way.
    pub(super) fn iter_mut_unordered(&mut self) -> impl Iterator<Item = (WorkerId, &mut Worker)> {
        self.by_id.iter_mut().map(|(id, worker)| (*id, worker.as_mut()))
    }

    /// All are in the order, and nothing else is. For the audit.
    pub(super) fn are_indexed(&self) -> bool {
        self.ids.len() == self.by_id.len() && self.ids.iter().all(|id| self.by_id.contains_key(id))
    }

    /// The worker with this id, or the next one.
    pub(super) fn first_from(&self, id: WorkerId) -> Option<&Worker> {
        self.get(*self.ids.range(id..).next()?)
    }
}
