//! Answers why a job is not running: the obstacles of each worker, and the pending reason that follows from
//! them.
//!
//! `obstacles` lists everything that keeps a worker from a job. Placement checks a part of it,
//! `pending_reason` is the first obstacle of the nearest worker, and the API shows all obstacles of all
//! workers.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now, RuntimeKind, Timestamp, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::Worker;
use crate::fleet::classes::Need;
use crate::fleet::groups::{Intake, RuntimeState, WorkerGroup};
use crate::handlers::run_on;
use crate::ids::NeedId;
use crate::job::{Job, LiveState};
use crate::limits::{LimitFacts, LimitSelection, LimitsFacts, gate};
use crate::pauses::PauseTarget;
use crate::placement;
use crate::placement::exclusion::Excluded;
use crate::placement::rules::{EXCLUSIVE, exclusive_labels};
use crate::queue::LaneKey;
use crate::reservation::{ResourceKind, never_fits};
use crate::state::State;
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
    /// The pauses that keep it from a start, with their beginnings.
    pub pauses: Vec<(PauseTarget, Timestamp)>,
    /// Jobs of its lane that go before it, if it waits: those of its definition with the same keys.
    pub before: Option<u64>,
    /// Jobs that wait in its lane, itself included, if it waits.
    pub lane_jobs: Option<u64>,
    /// Its lane has all jobs of its definition that wait, of any revision, and does not belong to one worker.
    pub lane_has_all: bool,
    /// Steps of priority that it has gained by waiting, if it waits and priorities age.
    pub aged_steps: Option<u64>,
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
    /// Another member of the job's parent is or was on the worker.
    Sibling,
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
    /// The worker offers less of this resource than the job reserves.
    TooLarge(ResourceKind),
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
    /// All slots of the worker are taken. Its backlog may have room, which is not for this job: jobs with limits or reservations never go there,
    /// and others not while one of these waits before them.
    Busy,
    /// Other attempts have reserved too much of this resource of the worker.
    Resources(ResourceKind),
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
            Self::Sibling => "sibling",
            Self::Requirement(_) => "requirement",
            Self::Exclusive => "exclusive",
            Self::TooLarge(_) => "too_large",
            Self::Offline => "offline",
            Self::Unreachable => "unreachable",
            Self::NoRuntime => "no_runtime",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Excluded(..) => "excluded",
            Self::Probing => "probing",
            Self::Busy => "busy",
            Self::Resources(_) => "resources",
            Self::Joining => "joining",
        }
    }

    /// The pending reason if this is the first obstacle of the nearest worker.
    const fn reason(self) -> PendingReason {
        match self {
            Self::PinnedElsewhere(_) => PendingReason::PinnedWorkerAway,
            Self::Offline | Self::Unreachable => PendingReason::NoWorker,
            Self::NoRuntime => PendingReason::NoRuntime,
            Self::NotListed | Self::Sibling | Self::Requirement(_) | Self::Exclusive => {
                PendingReason::NoMatch
            }
            Self::TooLarge(_) => PendingReason::TooLarge,
            Self::RuntimeUnavailable => PendingReason::RuntimeUnavailable,
            Self::Cordoned | Self::Draining => PendingReason::Cordoned,
            Self::Excluded(..) | Self::Probing => PendingReason::Excluded,
            Self::Busy => PendingReason::Busy,
            Self::Resources(_) => PendingReason::Resources,
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
        let (state, pending) = placement::state_and_reason(self, id, why_waiting_by_search);
        let needs = self.limits.needs(job.definition, placement::key_set_of(self, job));
        let limits = needs.all().filter_map(|limit| self.limits.facts_of(limit, now)).collect();
        let pauses = self.pauses.of_jobs(&definition).collect();
        let lane = match job.live_state {
            LiveState::Queued(lane) => Some(lane),
            LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined | LiveState::Parent { .. } => {
                None
            }
        };
        let key = job.queue_key(self.config.priority_ageing, id);
        let before = lane.map(|lane| self.ready.count_before(lane, key) as u64);
        let lane_jobs = lane.map(|lane| self.ready.len_of_lane(lane));
        let of_name = self.definitions.named(&definition.name).map(|number| self.ready.len_of(number)).sum();
        let is_pinned = lane.is_some_and(|lane| lane.pinned_to().is_some());
        let lane_has_all = !is_pinned && lane_jobs == Some(of_name);
        let aged_steps = before.and(self.config.priority_ageing.steps(job.due_at, now.utc));
        Some(Explanation {
            state,
            pending,
            definition,
            limits,
            pauses,
            before,
            lane_jobs: lane_jobs.map(|jobs| jobs as u64),
            lane_has_all,
            aged_steps,
            workers,
        })
    }

    /// The state of the selected limits. Walks those only: it answers a request of an operator.
    #[must_use]
    pub fn limits(&self, now: Now, selection: &LimitSelection) -> LimitsFacts {
        LimitsFacts {
            running_max: self.config.server_limits.running_max,
            running: self.limits.held,
            queued: self.ready.len(),
            limits: self.limits.facts(now, selection),
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
        LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined | LiveState::Parent { .. } => {
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

/// The reason why the jobs of a lane wait: a pause, the workers' if that takes longest to overcome, else that of their limits.
pub(crate) fn why_queued(scheduler: &Scheduler, lane: LaneKey, by_workers: PendingReason) -> PendingReason {
    if scheduler.ready.is_paused(lane.definition()) {
        return PendingReason::Paused;
    }
    let by_limits =
        if by_workers < PendingReason::ServerFull { None } else { gate::why_limited(scheduler, lane) };
    by_limits.unwrap_or(by_workers)
}

/// The reason why jobs of a lane wait: the first obstacle of the nearest worker. It follows from the groups of workers, which must be up
/// to date ([`Fleet::regroup`](crate::fleet::Fleet::regroup)).
pub(crate) fn why_waiting(scheduler: &Scheduler, lane: LaneKey) -> PendingReason {
    let definition = scheduler.definitions.at(lane.definition());
    let need = scheduler.fleet.classes().need_of(lane.definition());
    let is_general = lane.pinned_to().is_none() && lane.distinct_of().is_none();
    let (true, Some(definition), Some((need_id, need))) = (is_general, definition, need) else {
        return why_waiting_by_search(scheduler, lane);
    };
    if need.workers.is_empty() {
        return nearest_group(scheduler, definition, (need_id, need));
    }
    let listed: BTreeSet<WorkerId> =
        need.workers.iter().flat_map(|listed| scheduler.fleet.selected(listed)).collect();
    let listed = listed.into_iter().filter_map(|id| scheduler.fleet.worker(id));
    let (count, nearest) = listed.fold((0, None), |(count, nearest), worker| {
        (count + 1, nearest.max(Some(reason_of(scheduler, worker, lane))))
    });
    let others = (scheduler.fleet.len() > count).then_some(PendingReason::NoMatch);
    nearest.max(others).unwrap_or(PendingReason::NoWorker)
}

/// The same answer as that of [`why_waiting`], found by looking at each worker.
pub(crate) fn why_waiting_by_search(scheduler: &Scheduler, lane: LaneKey) -> PendingReason {
    let reason = |worker| reason_of(scheduler, worker, lane);
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

fn reason_of(scheduler: &Scheduler, worker: &Worker, lane: LaneKey) -> PendingReason {
    obstacles(scheduler, worker, lane).next().map_or(PendingReason::Soon, Obstacle::reason)
}

/// The best reason of all groups, for a need without a list of workers.
fn nearest_group(scheduler: &Scheduler, definition: &Definition, need: (NeedId, &Need)) -> PendingReason {
    let mut best = PendingReason::NoWorker;
    for (group, count) in scheduler.fleet.groups().of_revision(definition.revision) {
        let reason = reason_of_group(scheduler, group, definition.runtime(), need);
        if count.others > 0 {
            best = best.max(reason);
        }
        if count.excluding > 0 {
            best = best.max(reason.min(PendingReason::Excluded));
        }
        if best == PendingReason::Soon {
            break;
        }
    }
    best
}

/// The reason that follows from the first obstacle of the workers of a group, in the order of [`obstacles`].
fn reason_of_group(
    scheduler: &Scheduler,
    group: &WorkerGroup,
    runtime: RuntimeKind,
    (need_id, need): (NeedId, &Need),
) -> PendingReason {
    let WorkerGroup::Connected { class, runtimes, intake, fitting } = group else {
        return PendingReason::NoWorker;
    };
    let of_runtime = RuntimeKind::ALL.into_iter().zip(runtimes).find(|(kind, _)| *kind == runtime);
    let state = of_runtime.map_or(RuntimeState::Missing, |(_, state)| *state);
    let has_labels = || {
        let facts = class.and_then(|class| scheduler.fleet.classes().facts(class));
        facts.is_none_or(|facts| facts.meets_by_labels(need))
    };
    let reservation = scheduler.fleet.classes().reservation_of(need_id);
    let is_large_enough = || {
        let facts = class.and_then(|class| scheduler.fleet.classes().facts(class));
        facts.is_none_or(|facts| facts.meets_by_resources(reservation))
    };
    match (state, intake) {
        (RuntimeState::Missing, _) => PendingReason::NoRuntime,
        _ if !has_labels() => PendingReason::NoMatch,
        _ if !is_large_enough() => PendingReason::TooLarge,
        (RuntimeState::Unavailable, _) => PendingReason::RuntimeUnavailable,
        (_, Intake::Withdrawn) => PendingReason::Cordoned,
        (RuntimeState::Excluded, _) | (_, Intake::Probing) => PendingReason::Excluded,
        (RuntimeState::Available, Intake::Full) => PendingReason::Busy,
        (RuntimeState::Available, Intake::Open) => match reservation {
            Some(reservation) if fitting.binary_search(&reservation).is_err() => PendingReason::Resources,
            _ => PendingReason::Soon,
        },
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
    let is_away = worker.link.is_away();
    let is_missed = worker.lease.is_expired && !worker.holdings.jobs.is_empty();
    // The runtimes of a disconnected worker are unknown.
    let runtime = definition.map(|definition| definition.runtime()).filter(|_| !is_away);
    let first = [
        lane.pinned_to().filter(|only| *only != id).map(Obstacle::PinnedElsewhere),
        need.is_some_and(|need| !need.lists(id, &worker.row.name)).then_some(Obstacle::NotListed),
        lane.distinct_of().filter(|of| !run_on::lets(scheduler, *of, id)).map(|_| Obstacle::Sibling),
        (is_away && is_missed).then_some(Obstacle::Unreachable),
        (is_away && !is_missed).then_some(Obstacle::Offline),
        runtime.is_some_and(|runtime| !worker.capacity.has(runtime)).then_some(Obstacle::NoRuntime),
    ];
    // The labels of a worker that has not connected yet are unknown.
    let known = need.filter(|_| worker.class().is_some());
    let requires = known.into_iter().flat_map(|need| &need.requires);
    let unmet = (0..).zip(requires).filter(|(_, rule)| !rule.holds(worker.label(&rule.label)));
    let is_exclusive = known
        .is_some_and(|need| exclusive_labels(worker.label(EXCLUSIVE)).any(|label| !need.asks_for(&label)));
    // The offer of a disconnected worker may change until it returns.
    let offer = &worker.capacity.offer;
    let reserves = known.filter(|_| !is_away).map(|need| &need.reserves);
    let too_large = reserves.and_then(|reserves| never_fits(offer, reserves));
    let lacking = reserves.and_then(|reserves| worker.holdings.in_use().lacking(offer, reserves));
    let rest = [
        is_exclusive.then_some(Obstacle::Exclusive),
        too_large.map(Obstacle::TooLarge),
        runtime
            .is_some_and(|runtime| worker.capacity.has(runtime) && !worker.capacity.offers(runtime))
            .then_some(Obstacle::RuntimeUnavailable),
        // Leaving is a property of a connected process.
        (worker.row.drain.is_some() || worker.link.is_leaving()).then_some(Obstacle::Draining),
        // A drain includes a cordon.
        (worker.row.cordoned && worker.row.drain.is_none()).then_some(Obstacle::Cordoned),
        definition
            .and_then(|definition| worker.health.exclusions.strongest(definition))
            .map(|(of, until)| Obstacle::Excluded(of, until)),
        worker.health.breaker.probe().map(|_| Obstacle::Probing),
        (!is_away && !worker.has_free_slot()).then_some(Obstacle::Busy),
        lacking.filter(|_| too_large.is_none()).map(Obstacle::Resources),
        worker.link.is_joining().then_some(Obstacle::Joining),
    ];
    let unmet = unmet.map(|(index, _)| Obstacle::Requirement(index));
    first.into_iter().flatten().chain(unmet).chain(rest.into_iter().flatten())
}
