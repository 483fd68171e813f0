//! Workers that are set aside for a waiting job. Others get room there only if they go before that job, or leave to it what it needs.

use protocol::{JobId, WorkerId};

use super::{FULL, Fleet, Worker, index_worker, unindex_worker};
use crate::queue::QueueKey;
use crate::reservation::Reservation;

/// The waiting job that a worker is set aside for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its position in the queue.
    pub key: QueueKey,
    /// Amounts that it reserves.
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
    /// A waiting job with this key and reservation may have room here. On a worker that is set aside for another job, it has to go before that
    /// one, or to leave a slot and all that the other one needs.
    #[must_use]
    pub fn admits(&self, key: QueueKey, reserves: &Reservation) -> bool {
        self.set_aside.as_ref().is_none_or(|it| key <= it.key || self.leaves_room(reserves, &it.reserves))
    }

    /// It is set aside for a job that goes before one with this key.
    #[must_use]
    pub fn is_set_aside_before(&self, key: QueueKey) -> bool {
        self.set_aside.as_ref().is_some_and(|it| it.key < key)
    }

    /// It has a free slot, and one more that may be kept for the job that it is set aside for.
    fn has_slot_to_spare(&self) -> bool {
        self.holdings.count().saturating_add(1) < self.slots()
    }

    /// After an attempt with the reservation `taken` a slot is free, and of each resource that it takes, as much as `kept`.
    fn leaves_room(&self, taken: &Reservation, kept: &Reservation) -> bool {
        let both = taken.with_amounts_of(kept);
        self.has_slot_to_spare() && self.holdings.in_use().lacking(&self.capacity.offer, &both).is_none()
    }
}

impl Fleet {
    /// Sets a worker aside for a waiting job, also if it was set aside for another one or if the job's position has changed.
    pub fn set_aside(&mut self, id: WorkerId, job: SetAside) {
        let Some(worker) = self.workers.get_mut(id) else { return };
        self.touched.insert(id);
        self.set_aside.insert(id, job.job());
        unindex_worker(&mut self.room, &mut self.classes, worker);
        let is_replaced = worker.set_aside.replace(job).is_some();
        // The new one may admit what the old one did not.
        if is_replaced && worker.listed_at.is_some() {
            self.newly_eligible.insert(id);
        }
    }

    /// Opens a worker again that was set aside.
    pub fn end_set_aside(&mut self, id: WorkerId) {
        if self.set_aside.remove(&id).is_none() {
            return;
        }
        let Some(worker) = self.workers.get_mut(id) else { return };
        self.touched.insert(id);
        worker.set_aside = None;
        index_worker(&mut self.room, &mut self.classes, worker);
        if worker.listed_at.is_some() {
            self.newly_eligible.insert(id);
        }
    }

    /// Workers that are set aside, by id, each with the job that it is set aside for.
    pub fn workers_set_aside(&self) -> impl ExactSizeIterator<Item = (WorkerId, JobId)> {
        self.set_aside.iter().map(|(id, job)| (*id, *job))
    }

    /// Those of them that have room.
    pub fn set_aside_with_room(&self) -> impl Iterator<Item = &Worker> {
        let workers = self.set_aside.keys().filter_map(|id| self.workers.get(*id));
        workers.filter(|worker| worker.listed_at.is_some())
    }

    /// Those of them that have a free slot.
    pub fn set_aside_with_slot(&self) -> impl Iterator<Item = &Worker> {
        let has_slot = |worker: &&Worker| worker.listed_at.is_some_and(|(load, _)| load < FULL);
        self.set_aside_with_room().filter(has_slot)
    }

    /// One of them may have a free slot for a job at this position, or for any job that leaves enough.
    #[must_use]
    pub fn may_have_slot_aside(&self, position: QueueKey) -> bool {
        let may_admit = |worker: &Worker| !worker.is_set_aside_before(position) || worker.has_slot_to_spare();
        self.set_aside_with_slot().any(may_admit)
    }
}
