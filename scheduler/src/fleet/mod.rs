//! Workers with their indices: by session, secret, name, load and backlog.
//!
//! Workers with room are ordered by load, so that the least loaded one is found without a search. A load
//! below 1,000 means that a slot is free; above it the backlog is being filled.

mod audit;
mod backlogs;
pub mod breaker;
pub mod capacity;
mod changed;
pub mod claims;
pub mod classes;
mod classify;
mod connection;
pub mod facts;
pub mod groups;
pub mod health;
pub mod holdings;
pub mod images;
pub mod lease;
mod room;
pub mod row;
mod set_aside;
pub mod table;
mod worker;
mod workers;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;
use protocol::{JobId, SessionId, Token, WorkerId};
use rand::Rng;
use rand::rngs::SmallRng;

use backlogs::Backlogs;
use classes::Classes;
pub use connection::{Link, Session};
use groups::Groups;
pub use holdings::UnconfirmedAttempt;
use images::ImageHolders;
use room::{RoomCounts, index_worker, unindex_worker};
pub use set_aside::SetAside;
use table::WorkerTable;
pub(crate) use worker::FULL;
pub use worker::{Worker, WorkerInfo};
use workers::Workers;

use crate::placement::rules::WorkerSelector;
use crate::queue::{AgedPriority, QueueKey};
use crate::reservation::Reserved;
use crate::table::{Seed, Table};

/// All workers.
#[derive(Debug)]
pub struct Fleet {
    workers: Workers,
    sessions: Table<SessionId, WorkerId>,
    /// Workers with room that are not set aside. Their classes list them.
    room: RoomCounts,
    classes: Classes,
    ties: SmallRng,
    /// Workers that may take jobs which no worker could take before.
    newly_eligible: BTreeSet<WorkerId>,
    /// Workers that had no free slot and have one, or have got resources back.
    newly_free: BTreeSet<WorkerId>,
    backlogs: Backlogs,
    /// Images that workers have.
    pub images: ImageHolders,
    /// Workers with prefetched attempts.
    with_backlog: BTreeSet<WorkerId>,
    /// Workers that are set aside for a waiting job.
    set_aside: BTreeMap<WorkerId, JobId>,
    by_secret: BTreeMap<[u8; 32], WorkerId>,
    by_name: BTreeSet<(Arc<str>, WorkerId)>,
    groups: Groups,
    /// Workers that may have changed since they were grouped.
    touched: BTreeSet<WorkerId>,
    /// Workers that may have changed since `published` was made; the touched ones are not listed.
    unpublished: HashSet<WorkerId, Seed>,
    published: WorkerTable,
    /// Workers that are not connected while their leases last, as of the last [`Self::regroup`].
    reconnecting: BTreeSet<WorkerId>,
}

impl Fleet {
    /// Creates an empty fleet; `ties` orders equally loaded workers, and `seed` is that of its tables.
    #[must_use]
    pub fn new(ties: SmallRng, seed: Seed) -> Self {
        Self {
            workers: Workers::new(seed),
            sessions: Table::with_hasher(seed),
            room: RoomCounts::default(),
            classes: Classes::default(),
            ties,
            newly_eligible: BTreeSet::new(),
            newly_free: BTreeSet::new(),
            backlogs: Backlogs::new(),
            images: ImageHolders::default(),
            with_backlog: BTreeSet::new(),
            set_aside: BTreeMap::new(),
            by_secret: BTreeMap::new(),
            by_name: BTreeSet::new(),
            groups: Groups::new(seed),
            touched: BTreeSet::new(),
            unpublished: HashSet::with_hasher(seed),
            published: WorkerTable::default(),
            reconnecting: BTreeSet::new(),
        }
    }

    /// The worker with this id.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(id)
    }

    /// The worker with this id. Call [`Self::refresh`] after a change of its capacity.
    pub fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        let worker = self.workers.get_mut(id)?;
        self.touched.insert(id);
        Some(worker)
    }

    /// The worker with this id, to record when it was heard. Nothing else may be changed: no snapshot and no pending reason would show it.
    pub fn heard_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(id)
    }

    /// Number of known workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// No worker is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// All workers, by id.
    pub fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter()
    }

    /// The worker with this id, or the next one.
    #[must_use]
    pub fn first_from(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.first_from(id)
    }

    /// The worker whose current session this is.
    #[must_use]
    pub fn by_session(&self, session: SessionId) -> Option<WorkerId> {
        self.sessions.get(&session).copied()
    }

    /// Adds a worker.
    pub fn add(&mut self, worker: Worker) {
        let id = worker.row.worker;
        self.by_secret.insert(worker.row.secret_hash, id);
        self.by_name.insert((worker.row.name.clone(), id));
        self.workers.insert(worker);
        self.touched.insert(id);
    }

    /// Removes a worker.
    pub fn remove(&mut self, id: WorkerId) {
        self.close(id);
        self.images.remove(id);
        self.touched.insert(id);
        if let Some(worker) = self.workers.remove(id) {
            if let Some(class) = worker.class {
                self.classes.leave(class, id);
            }
            self.by_secret.remove(&worker.row.secret_hash);
            self.by_name.remove(&(worker.row.name, id));
            worker.holdings.prefetched.iter().for_each(|key| self.backlogs.remove(*key));
            self.with_backlog.remove(&id);
            self.set_aside.remove(&id);
        }
    }

    /// Sets a worker's new connection.
    pub fn connect(&mut self, id: WorkerId, session: SessionId) {
        self.close(id);
        if let Some(worker) = self.worker_mut(id) {
            worker.link = Link::Joining(Session::new(session));
            self.sessions.insert(session, id);
        }
    }

    /// Removes a worker's connection.
    pub fn close(&mut self, id: WorkerId) {
        if let Some(worker) = self.worker_mut(id)
            && let Some(session) = worker.link.session()
        {
            worker.link = Link::Away;
            self.sessions.remove(&session);
            self.refresh(id);
        }
    }

    /// Adds an attempt to a worker, with its reservation.
    pub fn hold(&mut self, id: WorkerId, token: Token, reserved: Option<Reserved>) {
        if let Some(worker) = self.worker_mut(id) {
            worker.holdings.jobs.insert(token.job);
            worker.holdings.reserve(token, reserved);
            worker.health.breaker.assign(token.job);
            self.refresh(id);
        }
    }

    /// Removes an attempt from a worker. The only place where the reservation of a current attempt is given back.
    pub fn remove_attempt(&mut self, id: WorkerId, token: Token) {
        if let Some(worker) = self.worker_mut(id) {
            worker.holdings.jobs.remove(&token.job);
            worker.holdings.release_reservation(token);
            worker.health.breaker.remove(token.job);
            self.refresh(id);
        }
    }

    /// Records that an attempt of this worker is prefetched.
    pub fn enter_backlog(&mut self, id: WorkerId, key: QueueKey) {
        if let Some(worker) = self.workers.get_mut(id)
            && worker.holdings.prefetched.insert(key)
        {
            self.backlogs.add(key);
            self.with_backlog.insert(id);
            self.touched.insert(id);
        }
    }

    /// Records that an attempt of this worker is not prefetched any more.
    pub fn leave_backlog(&mut self, id: WorkerId, key: QueueKey) {
        if let Some(worker) = self.workers.get_mut(id)
            && worker.holdings.prefetched.remove(&key)
        {
            self.backlogs.remove(key);
            self.touched.insert(id);
            if worker.holdings.prefetched.is_empty() {
                self.with_backlog.remove(&id);
            }
        }
    }

    /// Workers with prefetched attempts, by id.
    pub fn with_backlog(&self) -> impl Iterator<Item = &Worker> {
        self.with_backlog.iter().filter_map(|id| self.workers.get(*id))
    }

    /// The lowest priority of all prefetched attempts.
    #[must_use]
    pub fn lowest_prefetched(&self) -> Option<AgedPriority> {
        self.backlogs.lowest()
    }

    /// The worker with this secret.
    #[must_use]
    pub fn by_secret(&self, hash: &[u8; 32]) -> Option<WorkerId> {
        self.by_secret.get(hash).copied()
    }

    /// Workers with this name.
    pub fn by_name(&self, name: &Arc<str>) -> impl Iterator<Item = &Worker> {
        let named = (name.clone(), WorkerId(0))..=(name.clone(), WorkerId(u64::MAX));
        self.by_name.range(named).filter_map(|(_, id)| self.workers.get(*id))
    }

    /// Workers that an entry of a list of workers means.
    pub fn selected(&self, selector: &WorkerSelector) -> impl Iterator<Item = WorkerId> {
        let (id, name): (Option<WorkerId>, Option<Arc<str>>) = match selector {
            WorkerSelector::Id(id) => (Some(*id), None),
            WorkerSelector::Name(name) => (None, Some(name.as_str().into())),
        };
        let named = name.into_iter().flat_map(|name| {
            let named = (name.clone(), WorkerId(0))..=(name, WorkerId(u64::MAX));
            self.by_name.range(named).map(|(_, id)| *id)
        });
        id.into_iter().chain(named)
    }

    /// Gives a worker another name.
    pub fn rename(&mut self, id: WorkerId, name: Arc<str>) {
        if let Some(worker) = self.workers.get_mut(id) {
            self.touched.insert(id);
            self.by_name.remove(&(core::mem::replace(&mut worker.row.name, name.clone()), id));
            self.by_name.insert((name, id));
        }
    }

    /// Drops the unconfirmed attempts of a job from all workers.
    pub fn drop_unconfirmed(&mut self, job: JobId) {
        let holders = self
            .workers
            .iter_mut_unordered()
            .filter_map(|(id, worker)| worker.holdings.drop_unconfirmed_of(job).then_some(id));
        let mut holders: Vec<WorkerId> = holders.collect();
        // Each gets a new tie-breaker.
        holders.sort_unstable();
        for id in holders {
            self.touched.insert(id);
            self.refresh(id);
        }
    }

    /// Updates the position of a worker in the order by load.
    pub fn refresh(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(id) else {
            return;
        };
        let load = worker.compute_load();
        let has_changed = worker.holdings.take_changed();
        // It may admit jobs now that it did not admit before, although it had a free slot and the same reservations fit.
        if worker.set_aside.is_some()
            && let Some(((old, _), load)) = worker.listed_at.zip(load)
            && (load < old || (load == old && has_changed))
        {
            self.newly_eligible.insert(id);
        }
        let fitting = has_changed.then(|| worker.compute_fitting(&self.classes));
        let fitting = fitting.filter(|fitting| *fitting != worker.fitting);
        if worker.listed_at.map(|(old, _)| old) == load && fitting.is_none() {
            return;
        }
        self.touched.insert(id);
        let has_free_slot = |load: Option<u32>| load.is_some_and(|load| load < FULL);
        let has_gained = || fitting.iter().flatten().any(|it| !worker.fits(*it));
        let has_slot_now = has_free_slot(load) && !has_free_slot(worker.listed_at.map(|(old, _)| old));
        // Also without a free slot: a lane that waits for resources is looked at again, because it may wait for a slot only by now.
        if has_slot_now || (load.is_some() && has_gained()) {
            self.newly_free.insert(id);
        }
        if worker.listed_at.is_none() && load.is_some() {
            self.newly_eligible.insert(id);
        }
        unindex_worker(&mut self.room, &mut self.classes, worker);
        worker.listed_at = load.map(|load| (load, self.ties.next_u32()));
        if let Some(fitting) = fitting {
            worker.fitting = fitting;
        }
        index_worker(&mut self.room, &mut self.classes, worker);
    }

    /// Classes of workers and needs of definitions.
    #[must_use]
    pub const fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The worker may take jobs that no worker could take before, for a reason that its load does not show.
    pub fn mark_capacity_grown(&mut self, id: WorkerId) {
        self.newly_eligible.insert(id);
    }

    /// Takes the workers that may take jobs which no worker could take when this was last asked.
    pub fn take_newly_eligible(&mut self) -> BTreeSet<WorkerId> {
        core::mem::take(&mut self.newly_eligible)
    }

    /// Takes the workers that have a free slot or more resources, and did not when this was last asked.
    pub fn take_newly_free(&mut self) -> BTreeSet<WorkerId> {
        core::mem::take(&mut self.newly_free)
    }

    /// A worker has a free slot.
    #[must_use]
    pub const fn has_free_slot(&self) -> bool {
        self.room.with_free_slot > 0
    }

    /// Workers with room that are not set aside, by class.
    pub fn open(&self) -> impl Iterator<Item = &Worker> {
        self.classes.open().filter_map(|(_, _, id)| self.workers.get(*id))
    }

    /// Those of them with a free slot.
    pub fn with_free_slot(&self) -> impl Iterator<Item = &Worker> {
        self.classes.with_free_slot().filter_map(|(_, _, id)| self.workers.get(*id))
    }

    /// A worker has room.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.room.all > 0
    }
}
