//! Workers that are set aside for a waiting job. Others get a slot there only if they go before that job, or leave to it what it needs.

use protocol::{JobId, WorkerId};

use super::{FULL, Fleet, Worker, list, unlist};
use crate::queue::QueueKey;
use crate::reservation::Reservation;

/// The waiting job that a worker is set aside for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its position in the queue.
    pub key: QueueKey,
    /// What it reserves.
    pub reserves: Reservation,
}

impl SetAside {
    /// The job.
    #[must_use]
    pub const fn job(&self) -> JobId {
        self.key.job()
    }
}

impl Worker {
    /// The job that it is set aside for lets a waiting job with this key and reservation have a slot here: it is that job itself, goes
    /// before it, or takes nothing that it needs.
    #[must_use]
    pub fn admits(&self, key: QueueKey, reserves: &Reservation) -> bool {
        self.set_aside.as_ref().is_none_or(|it| key <= it.key || self.leaves_room(reserves, &it.reserves))
    }

    /// After an attempt with the reservation `taken` a slot is free, and of each resource that it takes, as much as `kept`.
    fn leaves_room(&self, taken: &Reservation, kept: &Reservation) -> bool {
        let both = taken.with_amounts_of(kept);
        self.holdings.count().saturating_add(1) < self.slots()
            && self.holdings.in_use().lacking(&self.capacity.offer, &both).is_none()
    }
}

impl Fleet {
    /// Sets a worker aside for a waiting job, also if it was set aside for another one.
    pub fn set_aside(&mut self, id: WorkerId, job: SetAside) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        self.touched.insert(id);
        self.set_aside.insert(id, job.job());
        unlist(&mut self.with_room, &mut self.classes, worker);
        worker.set_aside = Some(job);
    }

    /// Opens a worker again that was set aside.
    pub fn end_set_aside(&mut self, id: WorkerId) {
        if self.set_aside.remove(&id).is_none() {
            return;
        }
        let Some(worker) = self.workers.get_mut(&id) else { return };
        self.touched.insert(id);
        worker.set_aside = None;
        list(&mut self.with_room, &mut self.classes, worker);
        if worker.listed_at.is_some() {
            self.newly_eligible.insert(id);
            self.newly_free.insert(id);
        }
    }

    /// Workers that are set aside, by id, each with the job that it is set aside for.
    pub fn workers_set_aside(&self) -> impl ExactSizeIterator<Item = (WorkerId, JobId)> {
        self.set_aside.iter().map(|(id, job)| (*id, *job))
    }

    /// Those of them that have a free slot.
    pub fn set_aside_with_slot(&self) -> impl Iterator<Item = &Worker> {
        let workers = self.set_aside.keys().filter_map(|id| self.workers.get(id));
        workers.filter(|worker| worker.listed_at.is_some_and(|(load, _)| load < FULL))
    }
}
