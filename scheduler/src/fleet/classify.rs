//! Puts workers into classes when their facts, or the needs of definitions, change.

use alloc::vec::Vec;

use protocol::WorkerId;

use super::classes::Need;
use super::{Fleet, index_worker, unindex_worker};
use crate::ids::DefinitionNo;

impl Fleet {
    /// Puts a worker into the class of its labels and runtimes after one of them changed.
    pub fn reclassify(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(id) else { return };
        self.touched.insert(id);
        let facts = worker.class_facts(&self.classes);
        if worker.class.and_then(|class| self.classes.facts(class)) == Some(&facts) {
            // Its free resources may have changed.
            worker.holdings.mark_changed();
            return self.refresh(id);
        }
        unindex_worker(&mut self.room, &mut self.classes, worker);
        if let Some(old) = worker.class.take() {
            self.classes.leave(old, id);
        }
        worker.fitting = worker.compute_fitting(&self.classes);
        worker.class = Some(self.classes.join(facts, id));
        index_worker(&mut self.room, &mut self.classes, worker);
        if worker.listed_at.is_some() {
            self.newly_eligible.insert(id);
        }
    }

    /// Puts a worker into its class again if it has one: it has connected since the server's start.
    pub fn reclassify_known(&mut self, id: WorkerId) {
        if self.workers.get(id).is_some_and(|worker| worker.class.is_some()) {
            self.reclassify(id);
        }
    }

    /// Replaces the needs of all definitions. Walks over all workers: it follows a load of jobs.yaml.
    pub fn replace_needs(&mut self, needs: impl Iterator<Item = (DefinitionNo, Need)>) {
        self.classes.replace_needs(needs);
        self.reclassify_all();
    }

    /// Sets the needs of definitions. Walks once over all workers if they name a label, a reservation or conditions of a narrowing that no
    /// other one does: once for each of them at most, since needs are kept while they are not too many, and the conditions of narrowings are
    /// limited.
    pub fn add_needs(&mut self, needs: impl Iterator<Item = (DefinitionNo, Need)>) {
        let mut is_new = false;
        for (number, need) in needs {
            is_new |= self.classes.add_need(number, need);
        }
        if is_new {
            self.reclassify_all();
        }
    }

    fn reclassify_all(&mut self) {
        let connected = self.workers.iter().filter(|(_, worker)| worker.class.is_some());
        let connected: Vec<WorkerId> = connected.map(|(id, _)| id).collect();
        connected.into_iter().for_each(|id| self.reclassify(id));
    }
}
