//! Answers why a job is not running: the obstacles of each worker, and the pending reason that follows from
//! them.
//!
//! `obstacles` lists everything that keeps a worker from a job. Placement checks a part of it,
//! `pending_reason` is the first obstacle of the nearest worker, and the API shows all obstacles of all
//! workers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::{Link, Worker};
use crate::job::{Job, LiveState, State};
use crate::limits::{LimitFacts, LimitsFacts, gate};
use crate::placement;
use crate::placement::exclusion::Excluded;
use crate::placement::rules::{EXCLUSIVE, exclusive_labels};
use crate::queue::LaneKey;
use crate::step::PendingReason;

/// The state of a job that has not ended, with reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The job's state.
    pub state: State,
    /// The reason for waiting, if the job waits.
    pub pending: Option<PendingReason>,
    /// The job's definition.
    pub definition: Arc<Definition>,
    /// The limits that the job needs, with their state.
    pub limits: Vec<LimitFacts>,
    /// Jobs of its lane that go before it, if it waits: those of its definition with the same keys.
    pub before: Option<u64>,
    /// All known workers, ordered by id.
    pub workers: Vec<WorkerVerdict>,
}

/// The verdict about one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerVerdict {
    /// The worker's id.
    pub worker: WorkerId,
    /// The worker's name.
    pub name: Arc<str>,
    /// The obstacles, if any.
    pub verdict: PlacementVerdict,
}

/// The verdict about a worker for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementVerdict {
    /// The worker holds the job's current attempt.
    Holding,
    /// The worker may get the job.
    Able,
    /// The worker gets the job only if no other worker can take it: the last attempt ran here.
    LastResort,
    /// The worker cannot get the job. The obstacle that takes longest to overcome is first; the list is never
    /// empty.
    Unable(Vec<Obstacle>),
}

/// A fact that keeps a worker from a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Only this other worker may run the job.
    PinnedElsewhere(WorkerId),
    /// The job's definition lists other workers.
    NotListed,
    /// The worker is not connected.
    Offline,
    /// The worker is not connected, its lease has expired, and it has attempts that may still run.
    Unreachable,
    /// The worker does not have the job's runtime.
    NoRuntime,
    /// The worker does not meet the condition with this index in the definition's `requires`.
    Requirement(u16),
    /// The worker takes only jobs that ask for each of its exclusive labels.
    Exclusive,
    /// The worker has the job's runtime, but the runtime does not answer.
    RuntimeUnavailable,
    /// The worker finishes its attempts and leaves.
    Draining,
    /// An operator cordoned the worker.
    Cordoned,
    /// The worker released or failed to start such jobs and is excluded until then; `None`: until it
    /// restarts.
    Excluded(Excluded, Option<Uptime>),
    /// The worker is suspect, and a job is probing it.
    Probing,
    /// All slots and backlog positions of the worker are taken.
    Busy,
    /// The worker has just connected and is not reconciled yet.
    Joining,
}

impl Obstacle {
    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PinnedElsewhere(_) => "pinned_elsewhere",
            Self::NotListed => "not_listed",
            Self::Requirement(_) => "requirement",
            Self::Exclusive => "exclusive",
            Self::Offline => "offline",
            Self::Unreachable => "unreachable",
            Self::NoRuntime => "no_runtime",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Excluded(..) => "excluded",
            Self::Probing => "probing",
            Self::Busy => "busy",
            Self::Joining => "joining",
        }
    }

    /// The pending reason if this is the first obstacle of the nearest worker.
    const fn reason(self) -> PendingReason {
        match self {
            Self::PinnedElsewhere(_) => PendingReason::PinnedWorkerAway,
            Self::Offline | Self::Unreachable => PendingReason::NoWorker,
            Self::NoRuntime => PendingReason::NoRuntime,
            Self::NotListed | Self::Requirement(_) | Self::Exclusive => PendingReason::NoMatch,
            Self::RuntimeUnavailable => PendingReason::RuntimeUnavailable,
            Self::Cordoned | Self::Draining => PendingReason::Cordoned,
            Self::Excluded(..) | Self::Probing => PendingReason::Excluded,
            Self::Busy => PendingReason::Busy,
            Self::Joining => PendingReason::Soon,
        }
    }
}

impl Scheduler {
    /// Explains the state of a job that has not ended. Walks over all workers: it answers a request of an
    /// operator for one job.
    #[must_use]
    pub fn explain(&self, now: Now, id: JobId) -> Option<Explanation> {
        let job = self.live_job(id)?;
        let definition = self.definitions.at(job.definition)?.clone();
        let workers = self.fleet.iter().map(|(worker, facts)| WorkerVerdict {
            worker,
            name: facts.row.name.clone(),
            verdict: verdict(self, job, &definition, facts),
        });
        let workers = workers.collect();
        let (state, pending) = placement::state_and_reason(self, id);
        let needs = self.limits.needs(job.definition, placement::key_set_of(self, job));
        let limits = needs.all().filter_map(|limit| self.limits.facts_of(limit, now)).collect();
        let before = match job.live_state {
            LiveState::Queued(lane) => Some(self.ready.count_before(lane, job.queue_key(id)) as u64),
            LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined => None,
        };
        Some(Explanation { state, pending, definition, limits, before, workers })
    }

    /// The state of the limits of this name, or of all limits. Walks all limits: it answers a request of an operator.
    #[must_use]
    pub fn limits(&self, now: Now, name: Option<&str>) -> LimitsFacts {
        LimitsFacts {
            running_max: self.config.server_limits.running_max,
            running: self.limits.held,
            queued: self.ready.len(),
            limits: self.limits.facts(now, name),
        }
    }
}

fn verdict(scheduler: &Scheduler, job: &Job, definition: &Definition, worker: &Worker) -> PlacementVerdict {
    let id = worker.row.worker;
    if job.attempt().is_some_and(|attempt| attempt.worker == id) {
        return PlacementVerdict::Holding;
    }
    let lane = match job.live_state {
        LiveState::Queued(lane) => lane,
        // The lane that the job would wait in.
        LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined => {
            placement::lane_of(scheduler, job)
        }
    };
    let obstacles: Vec<Obstacle> = obstacles(scheduler, worker, lane).collect();
    match () {
        () if !obstacles.is_empty() => PlacementVerdict::Unable(obstacles),
        () if placement::avoids(job, definition, id) => PlacementVerdict::LastResort,
        () => PlacementVerdict::Able,
    }
}

/// The reason why the jobs of a lane wait: the workers' if that takes longest to overcome, else that of their limits.
pub(crate) fn why_queued(scheduler: &Scheduler, lane: LaneKey) -> PendingReason {
    let by_workers = why_waiting(scheduler, lane);
    let by_limits =
        if by_workers < PendingReason::ServerFull { None } else { gate::why_limited(scheduler, lane) };
    by_limits.unwrap_or(by_workers)
}

/// The reason why jobs of a lane wait: the first obstacle of the nearest worker.
pub(crate) fn why_waiting(scheduler: &Scheduler, lane: LaneKey) -> PendingReason {
    let reason = |worker| {
        let first = obstacles(scheduler, worker, lane).next();
        first.map_or(PendingReason::Soon, Obstacle::reason)
    };
    match lane.pinned_to() {
        Some(only) => scheduler
            .fleet
            .worker(only)
            .map_or(PendingReason::NoWorker, reason)
            .max(PendingReason::PinnedWorkerAway),
        None => {
            scheduler.fleet.iter().map(|(_, worker)| reason(worker)).max().unwrap_or(PendingReason::NoWorker)
        }
    }
}

/// Everything that keeps a worker from the jobs of this lane, hardest obstacle first.
pub(crate) fn obstacles<'s>(
    scheduler: &'s Scheduler,
    worker: &'s Worker,
    lane: LaneKey,
) -> impl Iterator<Item = Obstacle> + use<'s> {
    let id = worker.row.worker;
    let definition = scheduler.definitions.at(lane.definition());
    let need = scheduler.fleet.classes().need_of(lane.definition()).map(|(_, need)| need);
    let is_away = worker.link == Link::Away;
    let is_missed = worker.unreachable && !worker.held.is_empty();
    // The runtimes of a disconnected worker are unknown.
    let runtime = definition.map(|definition| definition.runtime()).filter(|_| !is_away);
    let first = [
        lane.pinned_to().filter(|only| *only != id).map(Obstacle::PinnedElsewhere),
        need.is_some_and(|need| !need.lists(id, &worker.row.name)).then_some(Obstacle::NotListed),
        (is_away && is_missed).then_some(Obstacle::Unreachable),
        (is_away && !is_missed).then_some(Obstacle::Offline),
        runtime.is_some_and(|runtime| !worker.has(runtime)).then_some(Obstacle::NoRuntime),
    ];
    // The labels of a worker that has not connected yet are unknown.
    let known = need.filter(|_| worker.class().is_some());
    let requires = known.into_iter().flat_map(|need| &need.requires);
    let unmet = (0..).zip(requires).filter(|(_, rule)| !rule.holds(worker.label(&rule.label)));
    let is_exclusive = known
        .is_some_and(|need| exclusive_labels(worker.label(EXCLUSIVE)).any(|label| !need.asks_for(&label)));
    let rest = [
        is_exclusive.then_some(Obstacle::Exclusive),
        runtime
            .is_some_and(|runtime| worker.has(runtime) && !worker.offers(runtime))
            .then_some(Obstacle::RuntimeUnavailable),
        // Leaving is a property of a connected process.
        (worker.row.drain.is_some() || (!is_away && worker.leaving)).then_some(Obstacle::Draining),
        // A drain includes a cordon.
        (worker.row.cordoned && worker.row.drain.is_none()).then_some(Obstacle::Cordoned),
        definition
            .and_then(|definition| worker.exclusions.strongest(definition))
            .map(|(of, until)| Obstacle::Excluded(of, until)),
        worker.breaker.probe().map(|_| Obstacle::Probing),
        (!is_away && !worker.has_room()).then_some(Obstacle::Busy),
        matches!(worker.link, Link::Joining(_)).then_some(Obstacle::Joining),
    ];
    let unmet = unmet.map(|(index, _)| Obstacle::Requirement(index));
    first.into_iter().flatten().chain(unmet).chain(rest.into_iter().flatten())
}
