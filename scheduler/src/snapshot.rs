//! A snapshot of workers, waiting lanes and phases for the API. The server publishes it, so that readers
//! never lock the scheduler.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::report::Phase;
use protocol::{ClusterId, JobId, Revision, Timestamp, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::expectations::ExpectationRow;
use crate::explain::pending;
pub use crate::fleet::facts::{Suspicion, WorkerFacts, WorkerState};
pub use crate::fleet::table::WorkerTable;
use crate::ids::NeedId;
use crate::limits::keys::KeySetNo;
use crate::limits::pending_reason;
use crate::pauses::Pauses;
use crate::placement::narrowing::Narrowing;
use crate::queue::LaneKey;
use crate::schedule_cursors::ahead_of;
use crate::step::PendingReason;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// Workers that are connected or hold attempts, by id. Shared with earlier snapshots as far as they are the same.
    pub workers: WorkerTable,
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
    /// The pauses in force. Shared with the scheduler until one changes.
    pub pauses: Arc<Pauses>,
    /// Number of jobs that have not ended.
    pub live_jobs: u64,
    /// The latest slot that a schedule of jobs.yaml has decided.
    pub latest_slot: Option<Timestamp>,
}

/// Jobs that wait in the same lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// The revision of their definition.
    pub revision: Revision,
    /// The workers that they ask for.
    pub narrowing: Option<Arc<Narrowing>>,
    /// The only worker that may run them, if there is one.
    pub pinned_to: Option<WorkerId>,
    /// The reason for waiting.
    pub reason: PendingReason,
    /// Number of jobs.
    pub count: u64,
}

impl Snapshot {
    /// Until when some schedule fires nothing, because its slots up to then were decided before the wall clock was set back.
    #[must_use]
    pub fn slots_decided_until(&self, now: Timestamp) -> Option<Timestamp> {
        ahead_of(self.latest_slot?, now)
    }
}

impl Scheduler {
    /// Creates the snapshot. Only workers that changed since the last one are copied.
    #[must_use]
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            cluster: self.config.cluster,
            workers: self.fleet.publish(),
            waiting: self.waiting(),
            definitions: self.definitions.published(),
            phases: self.phases.iter().map(|(job, phase)| (*job, *phase)).collect(),
            missed: self.expectations.missed(),
            schedule_queues: self.schedules.queues().collect(),
            replacing: self.unique.replacing().collect(),
            pauses: Arc::clone(&self.pauses),
            live_jobs: self.live_jobs() as u64,
            latest_slot: self.schedules.cursors.latest(),
        }
    }

    /// The facts of all workers that a snapshot shows. Walks over all of them, so it is for tests only.
    pub fn worker_facts(&self) -> impl Iterator<Item = WorkerFacts> {
        self.fleet.iter().filter_map(|(_, worker)| WorkerFacts::of(worker))
    }

    fn waiting(&self) -> Vec<Waiting> {
        // All definitions with one need have the same obstacles, except those that a worker excludes on their own.
        let mut alike: BTreeMap<Option<NeedId>, PendingReason> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (number, pinned_to, counts) in self.ready.counts() {
            let Some(definition) = self.definitions.at(number) else { continue };
            let revision = definition.revision;
            let narrowing = || self.definitions.narrowing(number).cloned();
            let need = self.fleet.classes().need_of(number);
            let lane = match pinned_to {
                Some(only) => LaneKey::Pinned(only, number, KeySetNo::UNLIMITED),
                None if need.is_some_and(|(_, need)| need.has_list()) => {
                    LaneKey::Listed(number, KeySetNo::UNLIMITED)
                }
                None => LaneKey::Definition(number, KeySetNo::UNLIMITED),
            };
            if let Some(reason) = pending::why_held_back(self, number) {
                let count = counts.jobs as u64;
                waiting.push(Waiting { revision, narrowing: narrowing(), pinned_to, reason, count });
                continue;
            }
            let why = || pending::why_waiting(self, lane);
            let worker_reason = if pinned_to.is_none() && !self.fleet.groups().excludes(revision) {
                *alike.entry(need.map(|(id, _)| id)).or_insert_with(why)
            } else {
                why()
            };
            let rest = counts.jobs - counts.limited - counts.rate_limited - counts.paused;
            let under = |reason| pending_reason::under_limit(self, reason, worker_reason);
            let reasons = [
                (counts.paused, PendingReason::Paused),
                (rest, pending_reason::without_keys(self, definition, worker_reason)),
                (counts.rate_limited, under(PendingReason::RateLimited)),
                (counts.limited, under(PendingReason::Limited)),
            ];
            let rows = reasons.into_iter().filter(|(count, _)| *count > 0);
            waiting.extend(rows.map(|(count, reason)| Waiting {
                revision,
                narrowing: narrowing(),
                pinned_to,
                reason,
                count: count as u64,
            }));
        }
        waiting
    }
}
