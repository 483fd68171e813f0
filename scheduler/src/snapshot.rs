//! A snapshot of workers, waiting lanes and phases for the API. The server publishes it, so that readers
//! never lock the scheduler.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::{Availability, Phase};
use protocol::{ClusterId, JobId, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::expectations::ExpectationRow;
use crate::explain;
use crate::fleet::breaker::Breaker;
use crate::fleet::classes::NeedId;
use crate::fleet::{Link, Worker};
use crate::limits::gate;
use crate::limits::keys::KeySetNo;
use crate::queue::LaneKey;
use crate::step::PendingReason;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// Workers that are connected or hold attempts, ordered by id.
    pub workers: Vec<WorkerFacts>,
    /// Waiting jobs by lane, with the reason.
    pub waiting: Vec<Waiting>,
    /// Definitions of jobs and of jobs.yaml, shared with the scheduler.
    pub definitions: Arc<BTreeMap<Revision, Arc<Definition>>>,
    /// Phases of assigned attempts, as their workers reported them.
    pub phases: Vec<(JobId, Phase)>,
    /// Expectations that are not met, by name.
    pub missed: Vec<ExpectationRow>,
    /// Definitions of which jobs of schedules wait for an earlier one, each with the job that must end first.
    pub schedule_queues: Vec<(Arc<str>, JobId)>,
    /// Jobs that wait for the one that they replace, with that one.
    pub replacing: Vec<(JobId, JobId)>,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
}

/// Jobs that wait in the same lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// The revision of their definition.
    pub revision: Revision,
    /// The only worker that may run them, if there is one.
    pub pinned_to: Option<WorkerId>,
    /// The reason for waiting.
    pub reason: PendingReason,
    /// Number of jobs.
    pub count: u64,
}

/// Facts about a worker.
#[derive(Clone, Debug)]
pub struct WorkerFacts {
    /// The worker's id.
    pub id: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
    /// The session, if the worker is connected.
    pub session: Option<SessionId>,
    /// The worker's state.
    pub state: WorkerState,
    /// Time of the last connect or disconnect.
    pub since: Timestamp,
    /// Containers that may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// Attempts that may wait in the backlog.
    pub backlog: u32,
    /// Attempts in the backlog.
    pub queued: u32,
    /// It is suspect: its circuit breaker is open.
    pub suspect: Option<Suspicion>,
    /// An operator cordoned it.
    pub cordoned: bool,
    /// Deadline of its drain, when running attempts are stopped.
    pub drain_deadline: Option<Timestamp>,
    /// The worker's own labels.
    pub own_labels: Vec<(String, String)>,
    /// Labels that an operator set over them.
    pub set_labels: Vec<(String, String)>,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Version of the worker's program.
    pub version: String,
    /// Network address.
    pub address: String,
    /// Unmanaged attempts: containers that this database does not know.
    pub unmanaged: Arc<BTreeMap<Token, Phase>>,
    /// Addresses of the clones, if the worker is cloned.
    pub clone_addresses: Vec<String>,
}

/// Why a worker is suspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Since when.
    pub since: Timestamp,
    /// The failures, for people.
    pub cause: String,
    /// End of its exclusion, if it is not over; then one job probes it.
    pub until: Option<Uptime>,
}

/// State of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Connected, not reconciled yet.
    Joining,
    /// Connected and reconciled.
    Ready,
    /// Connected; it failed to start jobs again and again, and gets one at a time to probe it.
    Suspect,
    /// Connected; finishes its attempts and leaves.
    Draining,
    /// Not connected; its lease has not expired.
    Disconnected,
    /// Its lease has expired.
    Unreachable,
    /// Several processes claim to be this worker; all are refused.
    Cloned,
}

impl WorkerState {
    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Disconnected => "disconnected",
            Self::Unreachable => "unreachable",
            Self::Cloned => "cloned",
        }
    }
}

impl Scheduler {
    /// Creates the snapshot.
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
            missed: self.expectations.missed(),
            schedule_queues: self.schedules.queues().collect(),
            replacing: self.unique.replacing().collect(),
            live_jobs: self.live_jobs() as u64,
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        // All definitions with one need have the same obstacles, except those that a worker excludes on their own.
        let singled_out: BTreeSet<Revision> =
            self.fleet.iter().flat_map(|(_, worker)| worker.exclusions.revisions()).collect();
        let mut alike: BTreeMap<Option<NeedId>, PendingReason> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (number, pinned_to, counts) in self.ready.counts() {
            let Some(definition) = self.definitions.at(number) else { continue };
            let revision = definition.revision;
            let lane = match pinned_to {
                Some(only) => LaneKey::Pinned(only, number, KeySetNo::UNLIMITED),
                None => LaneKey::Definition(number, KeySetNo::UNLIMITED),
            };
            let why = || explain::why_waiting(self, lane);
            let need = self.fleet.classes().need_of(number).map(|(need, _)| need);
            let by_workers = if pinned_to.is_none() && !singled_out.contains(&revision) {
                *alike.entry(need).or_insert_with(why)
            } else {
                why()
            };
            let rest = counts.jobs - counts.limited;
            let reasons = [
                (rest, gate::without_keys(self, definition, by_workers)),
                (counts.limited, gate::under_limits(definition, by_workers)),
            ];
            let rows = reasons.into_iter().filter(|(count, _)| *count > 0);
            waiting.extend(rows.map(|(count, reason)| Waiting {
                revision,
                pinned_to,
                reason,
                count: count as u64,
            }));
        }
        waiting
    }
}

fn facts(id: WorkerId, worker: &Worker) -> WorkerFacts {
    let state = match &worker.link {
        _ if worker.claims.until.is_some() => WorkerState::Cloned,
        _ if worker.unreachable => WorkerState::Unreachable,
        Link::Away => WorkerState::Disconnected,
        Link::Joining(_) => WorkerState::Joining,
        Link::Ready(_) if worker.is_draining() => WorkerState::Draining,
        Link::Ready(_) if worker.breaker.is_suspect() => WorkerState::Suspect,
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
        suspect: suspicion(worker),
        cordoned: worker.row.cordoned,
        drain_deadline: worker.row.drain.and_then(|drain| drain.deadline),
        own_labels: worker.info.labels.clone(),
        set_labels: worker.row.labels.clone(),
        runtimes: worker.runtimes.clone(),
        version: worker.info.version.clone(),
        address: worker.info.address.clone(),
        unmanaged: worker.unmanaged.clone(),
        clone_addresses: worker.claims.addresses().map(String::from).collect(),
    }
}

fn suspicion(worker: &Worker) -> Option<Suspicion> {
    match &worker.breaker {
        Breaker::Closed { .. } => None,
        Breaker::Suspect { since, cause, .. } => Some(Suspicion {
            since: *since,
            cause: cause.clone(),
            until: worker.exclusions.suspended_until(),
        }),
    }
}
