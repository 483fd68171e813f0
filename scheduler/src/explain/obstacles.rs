//! Everything that keeps a worker from a job.

use protocol::{JobId, Uptime, WorkerId};

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::fleet::classes::Need;
use crate::placement;
use crate::placement::exclusion::Excluded;
use crate::placement::rules::{EXCLUSIVE, exclusive_labels};
use crate::queue::LaneKey;
use crate::reservation::{ResourceKind, never_fits};
use crate::step::PendingReason;

/// A fact that keeps a worker from a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Only this other worker may run the job.
    PinnedElsewhere(WorkerId),
    /// The job's definition lists other workers.
    NotListed,
    /// The job asks for other workers.
    NotAskedFor,
    /// Another member of the job's parent is or was on the worker.
    Sibling,
    /// The worker is not connected.
    Offline,
    /// The worker is not connected, its lease has expired, and it has attempts that may still run.
    Unreachable,
    /// The worker does not have the job's runtime.
    NoRuntime,
    /// The worker speaks a protocol version that is too low for options of the job's container.
    TooOld,
    /// The worker does not meet the condition with this index in the definition's `requires`.
    Requirement(u16),
    /// The worker does not meet the condition with this index that the job itself has.
    Condition(u16),
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
    /// The worker is set aside for this waiting job, of another lane.
    SetAside(JobId),
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
            Self::NotAskedFor => "not_asked_for",
            Self::Condition(_) => "condition",
            Self::Sibling => "sibling",
            Self::Requirement(_) => "requirement",
            Self::Exclusive => "exclusive",
            Self::TooLarge(_) => "too_large",
            Self::Offline => "offline",
            Self::Unreachable => "unreachable",
            Self::NoRuntime => "no_runtime",
            Self::TooOld => "too_old",
            Self::RuntimeUnavailable => "runtime_unavailable",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Excluded(..) => "excluded",
            Self::Probing => "probing",
            Self::Busy => "busy",
            Self::Resources(_) => "resources",
            Self::SetAside(_) => "set_aside",
            Self::Joining => "joining",
        }
    }

    /// The pending reason if this is the first obstacle of the nearest worker.
    pub(super) const fn reason(self) -> PendingReason {
        match self {
            Self::PinnedElsewhere(_) => PendingReason::PinnedWorkerAway,
            Self::Offline | Self::Unreachable => PendingReason::NoWorker,
            Self::NoRuntime => PendingReason::NoRuntime,
            Self::NotListed
            | Self::NotAskedFor
            | Self::Sibling
            | Self::TooOld
            | Self::Requirement(_)
            | Self::Condition(_)
            | Self::Exclusive => PendingReason::NoMatch,
            Self::TooLarge(_) => PendingReason::TooLarge,
            Self::RuntimeUnavailable => PendingReason::RuntimeUnavailable,
            Self::Cordoned | Self::Draining => PendingReason::Cordoned,
            Self::Excluded(..) | Self::Probing => PendingReason::Excluded,
            Self::Busy => PendingReason::Busy,
            Self::Resources(_) => PendingReason::Resources,
            Self::SetAside(_) => PendingReason::SetAside,
            Self::Joining => PendingReason::Soon,
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
    let is_away = worker.link.is_away();
    let is_missed = worker.lease.is_expired && !worker.holdings.jobs.is_empty();
    // The runtimes of a disconnected worker are unknown.
    let runtime = definition.map(|definition| definition.runtime()).filter(|_| !is_away);
    let first = [
        lane.pinned_to().filter(|only| *only != id).map(Obstacle::PinnedElsewhere),
        need.is_some_and(|need| !need.is_listed_by_definition(id, &worker.row.name))
            .then_some(Obstacle::NotListed),
        need.is_some_and(|need| !need.is_asked_for(id, &worker.row.name)).then_some(Obstacle::NotAskedFor),
        lane.distinct_of()
            .filter(|of| !placement::siblings_allow(scheduler, *of, id))
            .map(|_| Obstacle::Sibling),
        (is_away && is_missed).then_some(Obstacle::Unreachable),
        (is_away && !is_missed).then_some(Obstacle::Offline),
        runtime.is_some_and(|runtime| !worker.capacity.has(runtime)).then_some(Obstacle::NoRuntime),
    ];
    // The labels of a worker that has not connected yet are unknown.
    let known = need.filter(|_| worker.class().is_some());
    let is_too_old = known.is_some_and(|need| !is_away && worker.info.protocol < need.protocol);
    let requires = known.into_iter().flat_map(|need| &need.requires);
    let unmet = (0..).zip(requires).filter(|(_, rule)| !rule.holds(worker.label(&rule.label)));
    let conditions = known.into_iter().flat_map(Need::conditions);
    let unmet_conditions = (0..).zip(conditions).filter(|(_, rule)| !rule.holds(worker.label(&rule.label)));
    let is_exclusive = known
        .is_some_and(|need| exclusive_labels(worker.label(EXCLUSIVE)).any(|label| !need.asks_for(&label)));
    // The offer of a disconnected worker may change until it returns.
    let offer = &worker.capacity.offer;
    let reserves = known.filter(|_| !is_away).map(|need| &need.reserves);
    let too_large = reserves.and_then(|reserves| never_fits(offer, reserves));
    let lacking = reserves.and_then(|reserves| worker.holdings.in_use().lacking(offer, reserves));
    let set_aside_for = worker.set_aside_for().filter(|_| !placement::admits_first(scheduler, lane, worker));
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
        set_aside_for.map(Obstacle::SetAside),
        worker.link.is_joining().then_some(Obstacle::Joining),
    ];
    let unmet = unmet.map(|(index, _)| Obstacle::Requirement(index));
    let unmet_conditions = unmet_conditions.map(|(index, _)| Obstacle::Condition(index));
    let too_old = is_too_old.then_some(Obstacle::TooOld);
    first
        .into_iter()
        .flatten()
        .chain(too_old)
        .chain(unmet)
        .chain(unmet_conditions)
        .chain(rest.into_iter().flatten())
}
