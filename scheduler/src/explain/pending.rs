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
use crate::job::{Job, LiveState};
use crate::limits::pending_reason;
use crate::queue::LaneKey;
use crate::state::State;
use crate::step::PendingReason;

/// The state of a job and its pending reason. `worker_reason` returns why the workers do not take the jobs of a lane: it is
/// [`why_waiting`] or [`why_waiting_by_search`].
pub(crate) fn state_and_reason(
    scheduler: &Scheduler,
    id: JobId,
    worker_reason: fn(&Scheduler, LaneKey) -> PendingReason,
) -> (State, Option<PendingReason>) {
    // A job that ended within the step that accepted it is gone; the caller sets its state.
    let Some(job) = scheduler.jobs.get(&id) else {
        return (State::Queued, None);
    };
    let pending = match &job.live_state {
        LiveState::Scheduled if scheduler.dependencies.must_wait(id) => Some(PendingReason::Dependencies),
        LiveState::Scheduled if scheduler.unique.must_wait(id) => Some(PendingReason::Replacing),
        LiveState::Scheduled => Some(PendingReason::NotDue),
        LiveState::Queued(lane) => Some(why_queued(scheduler, *lane, worker_reason(scheduler, *lane))),
        LiveState::Quarantined => Some(PendingReason::Quarantined),
        LiveState::Parent { has_started: false } => Some(PendingReason::Members),
        LiveState::Held(_) | LiveState::Parent { has_started: true } => None,
    };
    (job.state(), pending)
}

/// The reason why the jobs of a lane wait. First, the pause of their batch or the reason that holds back their definition. If the
/// workers' reason ranks below `ServerFull`, it wins; otherwise the limits' reason, if there is one.
fn why_queued(scheduler: &Scheduler, lane: LaneKey, worker_reason: PendingReason) -> PendingReason {
    if lane.is_paused() {
        return PendingReason::Paused;
    }
    if let Some(reason) = why_held_back(scheduler, lane.definition()) {
        return reason;
    }
    let by_limits = if worker_reason < PendingReason::ServerFull {
        None
    } else {
        pending_reason::of_lane(scheduler, lane, worker_reason)
    };
    by_limits.unwrap_or(worker_reason)
}

/// The reason why jobs with this definition wait whatever workers and limits there are.
pub(crate) fn why_held_back(scheduler: &Scheduler, number: DefinitionNo) -> Option<PendingReason> {
    let definition = scheduler.definitions.at(number).filter(|_| scheduler.ready.is_paused(number))?;
    Some(match scheduler.pauses.hold_back(definition) {
        true => PendingReason::Paused,
        false => PendingReason::SecretsMissing,
    })
}

/// The reason why this job waits whatever workers and limits there are.
pub(crate) fn why_job_held_back(scheduler: &Scheduler, id: JobId, job: &Job) -> Option<PendingReason> {
    let of_batch = scheduler.paused_batch(id, job).map(|_| PendingReason::Paused);
    of_batch.or_else(|| why_held_back(scheduler, job.definition))
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

/// The reason that follows from the first obstacle of a worker.
pub(crate) fn reason_of(scheduler: &Scheduler, worker: &Worker, lane: LaneKey) -> PendingReason {
    obstacles(scheduler, worker, lane).next().map_or(PendingReason::Soon, Obstacle::reason)
}

/// The best reason of all groups, for a need without a list of workers.
fn nearest_group(scheduler: &Scheduler, definition: &Definition, need: (NeedId, &Need)) -> PendingReason {
    let (classes, groups) = (scheduler.fleet.classes(), scheduler.fleet.groups());
    let reason_of = |group: &WorkerGroup| reason_of_group(scheduler, group, definition.runtime(), need);
    let meeting = core::iter::once(None).chain(classes.meeting(need.0).map(|(class, _)| Some(class)));
    let best = best_reason(meeting.flat_map(|class| groups.of_class(class, definition.revision)), reason_of);
    // Workers of other classes have `RuntimeUnavailable` at best. To find out which reason it is means to compare their labels, which
    // costs most.
    if best > PendingReason::RuntimeUnavailable {
        return best;
    }
    best.max(best_reason(groups.of_revision(definition.revision), reason_of))
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
pub(crate) fn reason_of_group(
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
    let facts = class.and_then(|class| scheduler.fleet.classes().facts(class));
    let keys = scheduler.fleet.classes().keys_of(need_id);
    let reservation = keys.reservation;
    // Closures: only few groups come as far as these comparisons.
    let matches = || {
        facts.is_none_or(|facts| {
            facts.meets_by_protocol(need) && facts.meets_by_labels(need) && facts.meets_by_conditions(keys)
        })
    };
    let is_large_enough = || facts.is_none_or(|facts| facts.meets_by_resources(keys));
    match (state, intake) {
        (RuntimeState::Missing, _) => PendingReason::NoRuntime,
        _ if !matches() => PendingReason::NoMatch,
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
