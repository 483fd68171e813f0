//! What the scheduler shows of the moment: workers, and why jobs wait. Published by the engine; nobody ever locks the brain.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::{Availability, Phase};
use protocol::{JobId, Revision, RuntimeKind, SessionId, Timestamp, WorkerId};

use crate::fleet::{Link, Worker};
use crate::place;
use crate::ready::LaneKey;
use crate::scheduler::Scheduler;
use crate::step::PendingReason;

/// The facts of a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Workers that are connected or have live attempts, ordered by id.
    pub workers: Vec<WorkerFacts>,
    /// Why the jobs of a revision wait, for each revision that has waiting jobs: revision, reason, how many.
    pub waiting: Vec<(Revision, PendingReason, u64)>,
    /// Where assigned attempts stand, as far as their workers have said.
    pub phases: Vec<(JobId, Phase)>,
    /// Jobs that have not ended.
    pub live_jobs: u64,
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
    /// What jobs may require of it.
    pub labels: Vec<(String, String)>,
    /// What it can run now.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// The version of its program.
    pub version: String,
    /// Where it connects from.
    pub address: String,
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
            .filter(|(_, worker)| worker.link.session().is_some() || !worker.held.is_empty())
            .map(|(id, worker)| facts(id, worker))
            .collect();
        Snapshot {
            workers,
            waiting: self.waiting(),
            phases: self.phases.iter().map(|(job, phase)| (*job, *phase)).collect(),
            live_jobs: self.live_jobs() as u64,
        }
    }

    fn waiting(&self) -> Vec<(Revision, PendingReason, u64)> {
        let definitions = self.ready.lanes().filter_map(|(lane, count)| match lane {
            LaneKey::Definition(number) => self.definitions.at(number).map(|definition| (definition, count)),
            LaneKey::Pinned(_) => None,
        });
        definitions
            .map(|(definition, count)| {
                (definition.revision, place::why_waiting(self, definition), count as u64)
            })
            .collect()
    }
}

fn facts(id: WorkerId, worker: &Worker) -> WorkerFacts {
    let state = match &worker.link {
        _ if worker.unreachable => WorkerState::Unreachable,
        Link::Away => WorkerState::Disconnected,
        Link::Joining(_) => WorkerState::Joining,
        Link::Ready(_) if worker.draining => WorkerState::Draining,
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
        labels: worker.card.labels.clone(),
        runtimes: worker.runtimes.clone(),
        version: worker.card.version.clone(),
        address: worker.card.address.clone(),
    }
}
