//! What the scheduler shows of the moment: workers, and why jobs wait. Published by the engine; nobody ever locks the brain.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::{Availability, Phase};
use protocol::{ClusterId, JobId, Revision, RuntimeKind, SessionId, Timestamp, Token, WorkerId};

use crate::definition::Definition;
use crate::explain;
use crate::fleet::{Link, Worker};
use crate::scheduler::Scheduler;
use crate::step::PendingReason;

/// The facts of a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The installation.
    pub cluster: ClusterId,
    /// Workers that are connected or have live attempts, ordered by id.
    pub workers: Vec<WorkerFacts>,
    /// Why jobs wait, for each lane in which some do.
    pub waiting: Vec<Waiting>,
    /// The definitions that jobs were made with, and those of jobs.yaml: the scheduler's own, not a copy.
    pub definitions: Arc<BTreeMap<Revision, Arc<Definition>>>,
    /// Where assigned attempts stand, as far as their workers have said.
    pub phases: Vec<(JobId, Phase)>,
    /// Jobs that have not ended.
    pub live_jobs: u64,
}

/// Jobs that wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// What they are made of.
    pub revision: Revision,
    /// The only worker that may run them, if there is but one.
    pub pinned_to: Option<WorkerId>,
    /// What they wait for.
    pub reason: PendingReason,
    /// How many they are.
    pub count: u64,
}

/// What is known of a worker.
#[derive(Clone, Debug)]
pub struct WorkerFacts {
    /// Its lasting identity.
    pub id: WorkerId,
    /// What people call it.
    pub name: Arc<str>,
    /// Its connection, if there is one.
    pub session: Option<SessionId>,
    /// What it does.
    pub state: WorkerState,
    /// When it connected, or when it was last heard of.
    pub since: Timestamp,
    /// How many containers may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// Attempts in its local queue.
    pub queued: u32,
    /// Whether it takes nothing new, by an operator's word.
    pub cordoned: bool,
    /// When what it still runs is stopped, while it drains.
    pub drain_deadline: Option<Timestamp>,
    /// Its own labels.
    pub own_labels: Vec<(String, String)>,
    /// What an operator laid over them.
    pub set_labels: Vec<(String, String)>,
    /// What it can run now.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// The version of its program.
    pub version: String,
    /// Where it connects from.
    pub address: String,
    /// Attempts on it that were never given here: containers that go on until a person decides.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
    /// If it is cloned: from where processes say that they are this worker.
    pub copies: Vec<String>,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Connected; its inventory has not been settled yet.
    Joining,
    /// Connected.
    Ready,
    /// Connected; finishes what it has, then leaves.
    Draining,
    /// Its connection is gone; its lease still holds.
    Disconnected,
    /// Its lease has run out.
    Unreachable,
    /// Several processes say that they are this worker; none of them is let in.
    Cloned,
}

impl WorkerState {
    /// As it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Unreachable => "unreachable",
            Self::Cloned => "cloned",
        }
    }
}

impl Scheduler {
    /// The facts of this moment. Looks at all workers and lanes, not at jobs.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let workers = self
            .fleet
            .iter()
            .filter(|(_, worker)| {
                worker.link.session().is_some() || !worker.held.is_empty() || worker.claims.until.is_some()
            })
            .map(|(id, worker)| facts(id, worker))
            .collect();
        Snapshot {
            cluster: self.config.cluster,
            workers,
            waiting: self.waiting(),
            definitions: self.definitions.published(),
            phases: self.phases.iter().map(|(job, phase)| (*job, *phase)).collect(),
            live_jobs: self.live_jobs() as u64,
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        // To every worker all definitions of one runtime are alike, but for those that some worker is not offered by name.
        let singled_out: BTreeSet<Revision> =
            self.fleet.iter().flat_map(|(_, worker)| worker.exclusions.revisions()).collect();
        let mut alike: BTreeMap<RuntimeKind, PendingReason> = BTreeMap::new();
        let lanes = self.ready.lanes().filter_map(|(lane, count)| {
            let definition = self.definitions.at(lane.definition())?;
            let (revision, pinned_to) = (definition.revision, lane.pinned_to());
            let why = || explain::why_waiting(self, definition, pinned_to);
            let reason = if pinned_to.is_none() && !singled_out.contains(&revision) {
                *alike.entry(definition.runtime()).or_insert_with(why)
            } else {
                why()
            };
            Some(Waiting { revision, pinned_to, reason, count: count as u64 })
        });
        lanes.collect()
    }
}

fn facts(id: WorkerId, worker: &Worker) -> WorkerFacts {
    let state = match &worker.link {
        _ if worker.claims.until.is_some() => WorkerState::Cloned,
        _ if worker.unreachable => WorkerState::Unreachable,
        Link::Away => WorkerState::Disconnected,
        Link::Joining(_) => WorkerState::Joining,
        Link::Ready(_) if worker.is_draining() => WorkerState::Draining,
        Link::Ready(_) => WorkerState::Ready,
    };
    let queued = worker.queued();
    WorkerFacts {
        id,
        name: worker.row.name.clone(),
        session: worker.link.session(),
        state,
        since: worker.since,
        slots: worker.slots(),
        busy: worker.held_count() - queued,
        backlog: worker.backlog,
        queued,
        cordoned: worker.row.cordoned,
        drain_deadline: worker.row.drain.and_then(|drain| drain.deadline),
        own_labels: worker.card.labels.clone(),
        set_labels: worker.row.labels.clone(),
        runtimes: worker.runtimes.clone(),
        version: worker.card.version.clone(),
        address: worker.card.address.clone(),
        unmanaged: worker.unmanaged.clone(),
        copies: worker.claims.addresses().map(String::from).collect(),
    }
}
