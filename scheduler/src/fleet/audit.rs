//! Inconsistencies between the workers and their indices.

use alloc::vec::Vec;

use protocol::Token;

use super::Fleet;
use super::facts::WorkerFacts;
use super::groups::WorkerGroup;
use super::room::RoomCounts;
use crate::reservation::InUse;

impl Fleet {
    /// Inconsistencies, for the audit.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        for (id, worker) in self.workers.iter() {
            if worker.compute_load() != worker.listed_at.map(|(load, _)| load) {
                faults.push("a worker's load is not what the order says");
            }
            let in_use = worker.holdings.in_use();
            if worker.fitting != self.classes.fitting(&worker.capacity.offer, in_use)
                && worker.class.is_some()
            {
                faults.push("a worker has other resources left than its position says");
            }
            let mut right = InUse::default();
            worker.holdings.reserved().for_each(|(_, reserved)| right.add(reserved));
            if right != *in_use {
                faults.push("the sum of a worker's reservations is wrong");
            }
            let is_held = |token: Token| {
                worker.holdings.jobs.contains(&token.job) || worker.holdings.unconfirmed.contains_key(&token)
            };
            if !worker.holdings.reserved().all(|(token, _)| is_held(token)) {
                faults.push("a worker keeps a reservation for an attempt that it does not hold");
            }
            let is_indexed = self.by_secret.get(&worker.row.secret_hash) == Some(&id)
                && self.by_name.contains(&(worker.row.name.clone(), id));
            if !is_indexed {
                faults.push("a worker is not found by its secret or name");
            }
            let position = worker.listing();
            let facts = worker.class_facts(&self.classes);
            let is_of_class = |class| {
                self.classes.facts(class) == Some(&facts)
                    && self.classes.lists_as(class, id, position, &worker.fitting)
            };
            if !worker.class.map_or_else(|| position.is_none(), is_of_class) {
                faults.push("a worker is not in the class of its facts");
            }
            if !self.touched.contains(&id) && self.groups.group_of(id) != Some(&WorkerGroup::of(worker)) {
                faults.push("a worker is not in the group of its facts");
            }
            let is_stale = self.touched.contains(&id) || self.unpublished.contains(&id);
            if !is_stale && self.published.get(id) != WorkerFacts::of(worker).as_ref() {
                faults.push("the published facts of a worker are not its present ones");
            }
            if worker.holdings.prefetched.is_empty() == self.with_backlog.contains(&id) {
                faults.push("the set of workers with backlogs is wrong");
            }
            if worker.set_aside_for() != self.set_aside.get(&id).copied() {
                faults.push("the index of workers that are set aside is wrong");
            }
            if worker.link.session().is_some_and(|session| self.by_session(session) != Some(id)) {
                faults.push("a worker's session is not known as its own");
            }
        }
        if !self.workers.are_indexed() {
            faults.push("the order of the workers is wrong");
        }
        if self.backlogs != self.workers.iter().flat_map(|(_, worker)| &worker.holdings.prefetched).collect()
        {
            faults.push("the count of prefetched attempts is wrong");
        }
        let room = RoomCounts::of(self.workers.iter().filter_map(|(_, worker)| worker.listing()));
        let of_classes = (self.room.all, self.room.all);
        if self.room != room || self.classes.open_counts() != of_classes {
            faults.push("the classes list other workers with room");
        }
        if !self.classes.are_matched() {
            faults.push("a need is matched with the wrong classes");
        }
        if !self.images.are_consistent() {
            faults.push("the workers of an image are not those that have it");
        }
        if !self.groups.are_counted() {
            faults.push("the groups count other workers");
        }
        if (self.is_grouped() && self.groups.len() != self.workers.len())
            || self.sessions.len() > self.workers.len()
            || self.by_secret.len() > self.workers.len()
            || self.by_name.len() > self.workers.len()
            || self.set_aside.len() > self.workers.len()
        {
            faults.push("an index has entries of nobody");
        }
        faults
    }
}
