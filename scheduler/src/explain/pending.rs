//! The pending reason of a job: why it waits.

use alloc::collections::BTreeSet;

use protocol::{JobId, RuntimeKind, WorkerId};

use super::obstacles::{Obstacle, obstacles};
use crate::core::Scheduler;
use crate::definition::Definition;
use crate::fleet::Worker;
use crate::fleet::classes::Need;
use crate::fleet::groups::{GroupCount, Intake, RuntimeState, WorkerGroup};
use crate::ids::{DefinitionNo, NeedId};
use crate::job::LiveState;
use crate::limits::gate;
use crate::limits::keys::KeySetNo;
use crate::queue::LaneKey;
use crate::state::State;
use crate::step::PendingReason;

/// The state of a job and its pending reason. `by_workers` answers why the workers do not take the jobs of a lane.
pub(crate) fn state_and_reason(
    scheduler: &Scheduler,
    id: JobId,
    by_workers: fn(&Scheduler, LaneKey) -> PendingReason,
) -> (State, Option<PendingReason>) {
    let Some(job) = scheduler.jobs.get(&id) else {
        return (State::Queued, None);
    };
    let pending = match &job.live_state {
        LiveState::Scheduled if scheduler.dependencies.must_wait(id) => Some(PendingReason::Dependencies),
        LiveState::Scheduled if scheduler.unique.must_wait(id) => Some(PendingReason::Replacing),
        LiveState::Scheduled => Some(PendingReason::NotDue),
        LiveState::Queued(lane) => Some(why_queued(scheduler, *lane, by_workers(scheduler, *lane))),
        LiveState::Quarantined => Some(PendingReason::Quarantined),
        LiveState::Parent { has_started: false } => Some(PendingReason::Members),
        LiveState::Held(_) | LiveState::Parent { has_started: true } => None,
    };
    (job.state(), pending)
}

/// The reason why the jobs of a lane wait: a pause, the workers' if that takes longest to overcome, else that of their limits.
fn why_queued(scheduler: &Scheduler, lane: LaneKey, by_workers: PendingReason) -> PendingReason {
    if scheduler.ready.is_paused(lane.definition()) {
        return PendingReason::Paused;
    }
    let by_limits = if by_workers < PendingReason::ServerFull {
        None
    } else {
        gate::why_limited(scheduler, lane, by_workers)
    };
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
    if !need.has_list() {
        let nearest = nearest_group(scheduler, definition, (need_id, need));
        // Their group does not tell whether workers that are set aside admit these jobs.
        let set_aside = scheduler.fleet.workers_set_aside();
        let mut set_aside = set_aside.filter_map(|(id, _)| scheduler.fleet.worker(id));
        let is_admitted = nearest == PendingReason::SetAside
            && set_aside.any(|worker| reason_of(scheduler, worker, lane) == PendingReason::Soon);
        return if is_admitted { PendingReason::Soon } else { nearest };
    }
    let listed: BTreeSet<WorkerId> =
        need.list().iter().flat_map(|listed| scheduler.fleet.selected(listed)).collect();
    let listed = listed.into_iter().filter_map(|id| scheduler.fleet.worker(id));
    let (count, nearest) = listed.fold((0, None), |(count, nearest), worker| {
        (count + 1, nearest.max(Some(reason_of(scheduler, worker, lane))))
    });
    let others = (scheduler.fleet.len() > count).then_some(PendingReason::NoMatch);
    nearest.max(others).unwrap_or(PendingReason::NoWorker)
}

/// True if a connected worker other than `holder` may run jobs of this definition, now or after something that passes: it is full, cordoned,
/// excluded, or its runtime does not answer. One that is leaving takes nothing any more. The groups of workers must be up to date, as for
/// [`why_waiting`].
pub(crate) fn may_run_elsewhere(scheduler: &Scheduler, number: DefinitionNo, holder: WorkerId) -> bool {
    let need = scheduler.fleet.classes().need_of(number);
    let (Some(definition), Some((need_id, need))) = (scheduler.definitions.at(number), need) else {
        return false;
    };
    let may_run = |reason: PendingReason| reason >= PendingReason::Cordoned;
    if need.has_list() {
        let lane = LaneKey::Definition(number, KeySetNo::UNLIMITED);
        let mut listed = need.list().iter().flat_map(|listed| scheduler.fleet.selected(listed));
        return listed.any(|id| {
            let worker = scheduler.fleet.worker(id).filter(|worker| id != holder && !worker.is_draining());
            worker.is_some_and(|worker| may_run(reason_of(scheduler, worker, lane)))
        });
    }
    let groups = scheduler.fleet.groups();
    let own = groups.group_of(holder);
    let is_leaving =
        |group: &WorkerGroup| matches!(group, WorkerGroup::Connected { intake: Intake::Leaving, .. });
    let mut staying = groups.of_revision(definition.revision).filter(|(group, _)| !is_leaving(group));
    staying.any(|(group, count)| {
        let others = count.others + count.excluding - usize::from(own == Some(group));
        others > 0 && may_run(reason_of_group(scheduler, group, definition.runtime(), (need_id, need)))
    })
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
    let meets = |group: &WorkerGroup| match group {
        WorkerGroup::Away => false,
        WorkerGroup::Connected { class, .. } => {
            class.is_none_or(|class| scheduler.fleet.classes().score(need.0, class).is_some())
        }
    };
    let groups = || scheduler.fleet.groups().of_revision(definition.revision);
    let reason_of = |group: &WorkerGroup| reason_of_group(scheduler, group, definition.runtime(), need);
    let best = best_reason(groups().filter(|(group, _)| meets(group)), reason_of);
    // Workers that do not meet the need have this reason at best, and comparing their labels costs most.
    if best > PendingReason::RuntimeUnavailable {
        return best;
    }
    best.max(best_reason(groups().filter(|(group, _)| !meets(group)), reason_of))
}

fn best_reason<'a>(
    groups: impl Iterator<Item = (&'a WorkerGroup, GroupCount)>,
    reason_of: impl Fn(&WorkerGroup) -> PendingReason,
) -> PendingReason {
    let mut best = PendingReason::NoWorker;
    for (group, count) in groups {
        let reason = reason_of(group);
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
    let keys = scheduler.fleet.classes().keys_of(need_id);
    let has_labels = || {
        let facts = class.and_then(|class| scheduler.fleet.classes().facts(class));
        facts.is_none_or(|facts| facts.meets_by_labels(need) && facts.meets_by_conditions(keys))
    };
    let reservation = keys.reservation;
    let is_large_enough = || {
        let facts = class.and_then(|class| scheduler.fleet.classes().facts(class));
        facts.is_none_or(|facts| facts.meets_by_resources(keys))
    };
    match (state, intake) {
        (RuntimeState::Missing, _) => PendingReason::NoRuntime,
        _ if !has_labels() => PendingReason::NoMatch,
        _ if !is_large_enough() => PendingReason::TooLarge,
        (RuntimeState::Unavailable, _) => PendingReason::RuntimeUnavailable,
        (_, Intake::Leaving | Intake::Cordoned) => PendingReason::Cordoned,
        (RuntimeState::Excluded, _) | (_, Intake::Probing) => PendingReason::Excluded,
        (RuntimeState::Available, Intake::Full) => PendingReason::Busy,
        (RuntimeState::Available, intake) => match reservation {
            Some(reservation) if fitting.binary_search(&reservation).is_err() => PendingReason::Resources,
            _ if *intake == Intake::SetAside => PendingReason::SetAside,
            _ => PendingReason::Soon,
        },
    }
}
