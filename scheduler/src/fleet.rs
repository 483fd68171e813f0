//! What we know of workers: identity, session, slots, what they can run, and which attempts they hold.
//!
//! Workers that could take one more attempt are kept ordered by load, so that the least loaded one is found without looking at the
//! others. Load below 1,000 means that a slot is free; above, the backlog is being filled.

mod backlogs;
mod link;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::Configure;
use protocol::report::{Availability, Phase};
use protocol::{JobId, ReportNo, RuntimeKind, SessionId, Timestamp, Token, Uptime, WorkerId};
use rand::Rng;
use rand::rngs::SmallRng;

use backlogs::Backlogs;
pub use link::Link;

use crate::claims::Claims;
use crate::definitions::DefinitionNo;
use crate::exclusion::Exclusions;
use crate::ready::Place;
use crate::step::WorkerRow;

/// A worker as the scheduler holds it.
#[derive(Debug)]
pub struct Worker {
    /// What is kept about it.
    pub row: WorkerRow,
    /// Its connection.
    pub link: Link,
    /// When it was last heard of, by the monotonic clock.
    pub heard: Uptime,
    /// When something that it said was last read; an absence of ours does not count here as it does for its lease.
    pub spoke: Uptime,
    /// When it was last heard of, or when it connected.
    pub since: Timestamp,
    /// When its lease runs out, while that is being watched.
    pub lease_end: Option<Uptime>,
    /// Whether its lease has run out.
    pub unreachable: bool,
    /// Whether its process says that it finishes what it has and leaves.
    pub leaving: bool,
    /// How many containers may run at once.
    pub slots: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// What it can run.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// What people are shown.
    pub card: Card,
    /// Who else says that it is this worker.
    pub claims: Claims,
    /// The last report of that process that was taken in; unknown after a start of the server.
    pub last_report: Option<ReportNo>,
    /// Jobs whose current attempt it has.
    pub held: BTreeSet<JobId>,
    /// Of these, the unstarted ones that went into its backlog.
    pub prefetched: BTreeSet<Place>,
    /// Definitions that this session has been sent.
    pub told: BTreeSet<DefinitionNo>,
    /// How often this session was asked to say that it lives, if more often than others.
    pub heartbeat: Option<Duration>,
    /// What it is not offered for now.
    pub exclusions: Exclusions,
    /// Its attempts that were given up, of jobs that go on or were cancelled: nobody knows whether their containers are gone.
    pub doubts: BTreeMap<Token, Doubt>,
    /// The parts of an inventory that is coming in.
    pub inventory: Vec<(Token, Phase)>,
    /// Of these, attempts that the archive does not have.
    pub strangers: BTreeSet<Token>,
    /// Attempts on it that were never given here, and that go on until a person decides.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
    load: Option<(u32, u32)>,
}

/// An attempt whose container may be there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What would have run it.
    pub runtime: RuntimeKind,
    /// The session during which it was given up, if it may have been sent within that.
    pub session: Option<SessionId>,
}

/// What a worker says of itself and only people look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its own labels; an operator's are laid over them.
    pub labels: Vec<(String, String)>,
    /// The version of its program.
    pub version: String,
    /// Where it connects from.
    pub address: String,
}

impl Worker {
    /// A worker that is not connected.
    #[must_use]
    pub fn away(row: WorkerRow, heard: Uptime) -> Self {
        Self {
            link: Link::Away,
            heard,
            spoke: heard,
            since: row.seen_at,
            lease_end: None,
            unreachable: false,
            leaving: false,
            slots: 0,
            backlog: 0,
            runtimes: Vec::new(),
            card: Card::default(),
            claims: Claims::default(),
            last_report: None,
            held: BTreeSet::new(),
            prefetched: BTreeSet::new(),
            told: BTreeSet::new(),
            heartbeat: None,
            exclusions: Exclusions::default(),
            doubts: BTreeMap::new(),
            inventory: Vec::new(),
            strangers: BTreeSet::new(),
            unmanaged: Arc::default(),
            load: None,
            row,
        }
    }

    /// Its slots, as an operator or else the worker says.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.row.slots.unwrap_or(self.slots)
    }

    /// Whether it finishes what it has and leaves, whoever wants that.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.leaving || self.row.drain.is_some()
    }

    /// What it is told of the decisions about it.
    #[must_use]
    pub const fn settings(&self) -> Configure {
        Configure { slots: self.row.slots, drain: self.row.drain.is_some(), intervals: None }
    }

    /// Whether it may be handed anything at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.link, Link::Ready(_)) && !self.row.cordoned && !self.leaving && !self.unreachable
    }

    /// Whether it says that it can run this kind now.
    #[must_use]
    pub fn offers(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, availability)| *kind == runtime && availability.is_available())
    }

    /// Whether it says that it has this kind, whether or not that answers.
    #[must_use]
    pub fn has(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, _)| *kind == runtime)
    }

    /// A runtime that it says is there is not kept from it any longer.
    pub fn lift_exclusions(&mut self) {
        for runtime in RuntimeKind::ALL {
            if self.offers(runtime) {
                self.exclusions.lift(runtime);
            }
        }
    }

    /// Whether one more attempt would find room in its slots or its backlog.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots() > 0 && self.held_count() < self.slots().saturating_add(self.backlog)
    }

    /// How many attempts it holds beyond its slots.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.held_count().saturating_sub(self.slots())
    }

    /// How many attempts it holds, whoever gave them.
    #[must_use]
    pub fn held_count(&self) -> u32 {
        u32::try_from(self.held.len() + self.unmanaged.len()).unwrap_or(u32::MAX)
    }

    /// Attempts per 1,000 slots, if one more would find room.
    fn load_now(&self) -> Option<u32> {
        let held = u64::from(self.held_count());
        (self.is_open() && self.has_room())
            .then(|| u32::try_from(held * FULL / u64::from(self.slots())).unwrap_or(u32::MAX))
    }
}

/// The load at which all slots are taken.
const FULL: u64 = 1_000;

/// All workers.
#[derive(Debug)]
pub struct Fleet {
    workers: BTreeMap<WorkerId, Worker>,
    sessions: BTreeMap<SessionId, WorkerId>,
    /// (load, tie, worker) of those with room.
    open: BTreeSet<(u32, u32, WorkerId)>,
    ties: SmallRng,
    grew: bool,
    backlogs: Backlogs,
}

impl Fleet {
    /// Starts empty; `ties` decides between equally loaded workers.
    #[must_use]
    pub const fn new(ties: SmallRng) -> Self {
        Self {
            workers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            open: BTreeSet::new(),
            ties,
            grew: false,
            backlogs: Backlogs::new(),
        }
    }

    /// The worker with this identity.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    /// The worker with this identity. Call [`Self::refresh`] after any change that decides about what it may take.
    pub fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&id)
    }

    /// All workers, by identity.
    pub fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// Whose session this is, if it is anybody's current one.
    #[must_use]
    pub fn by_session(&self, session: SessionId) -> Option<WorkerId> {
        self.sessions.get(&session).copied()
    }

    /// Adds a worker.
    pub fn add(&mut self, worker: Worker) {
        self.workers.insert(worker.row.worker, worker);
    }

    /// Drops a worker.
    pub fn remove(&mut self, id: WorkerId) {
        self.close(id);
        self.workers.remove(&id);
    }

    /// Gives a worker a new connection, in the place of any older one.
    pub fn connect(&mut self, id: WorkerId, session: SessionId) {
        self.close(id);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.link = Link::Joining(session);
            worker.inventory.clear();
            worker.strangers.clear();
            self.sessions.insert(session, id);
        }
    }

    /// Takes a worker's connection away.
    pub fn close(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id)
            && let Some(session) = worker.link.session()
        {
            worker.link = Link::Away;
            self.sessions.remove(&session);
            self.refresh(id);
        }
    }

    /// A job's attempt is now on this worker.
    pub fn hold(&mut self, id: WorkerId, job: JobId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.held.insert(job);
            self.refresh(id);
        }
    }

    /// A job's attempt is no longer on this worker.
    pub fn let_go(&mut self, id: WorkerId, job: JobId) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.held.remove(&job);
            self.refresh(id);
        }
    }

    /// An attempt that this worker holds went into its backlog.
    pub fn prefetch(&mut self, id: WorkerId, place: Place) {
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.prefetched.insert(place)
        {
            self.backlogs.add(place);
        }
    }

    /// An attempt is no longer in a backlog.
    pub fn fetch(&mut self, id: WorkerId, place: Place) {
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.prefetched.remove(&place)
        {
            self.backlogs.remove(place);
        }
    }

    /// The lowest priority of what sits in backlogs, if anything does.
    #[must_use]
    pub fn lowest_prefetched(&self) -> Option<i8> {
        self.backlogs.lowest()
    }

    /// Brings the order by load up to date with a worker.
    pub fn refresh(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let load = worker.load_now();
        if worker.load.map(|(old, _)| old) == load {
            return;
        }
        if let Some((old, tie)) = worker.load.take() {
            self.open.remove(&(old, tie, id));
        } else {
            self.grew = true;
        }
        if let Some(load) = load {
            let tie = self.ties.next_u32();
            worker.load = Some((load, tie));
            self.open.insert((load, tie, id));
        }
    }

    /// Somebody may take what nobody could take before, for a reason that load does not show.
    pub const fn note_growth(&mut self) {
        self.grew = true;
    }

    /// Whether somebody may take what nobody could take when this was last asked.
    pub const fn take_growth(&mut self) -> bool {
        core::mem::replace(&mut self.grew, false)
    }

    /// Workers that could take one more attempt, the least loaded one first; `true` if into a free slot.
    pub fn open(&self) -> impl Iterator<Item = (&Worker, bool)> {
        self.open.iter().filter_map(|(load, _, id)| Some((self.workers.get(id)?, u64::from(*load) < FULL)))
    }

    /// Whether anybody could take one more attempt.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.open.is_empty()
    }

    /// What is wrong with the fleet's own book-keeping: for the audit.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        for (id, worker) in &self.workers {
            let indexed = worker.load.is_some_and(|(load, tie)| self.open.contains(&(load, tie, *id)));
            if worker.load_now() != worker.load.map(|(load, _)| load) || worker.load.is_some() != indexed {
                faults.push("a worker's load is not what the order says");
            }
            if worker.link.session().is_some_and(|session| self.by_session(session) != Some(*id)) {
                faults.push("a worker's session is not known as its own");
            }
        }
        if self.backlogs != self.workers.values().flat_map(|worker| &worker.prefetched).collect() {
            faults.push("the count of prefetched attempts is wrong");
        }
        if self.open.len() > self.workers.len() || self.sessions.len() > self.workers.len() {
            faults.push("an index has entries of nobody");
        }
        faults
    }
}
