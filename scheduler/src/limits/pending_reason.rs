//! The reasons that limits give to jobs that wait.

use super::gate;
use crate::core::Scheduler;
use crate::definition::Definition;
use crate::queue::LaneKey;
use crate::step::PendingReason;

/// The reason why the jobs of a lane wait, if it is a limit, or a worker's backlog that they may not have.
pub(crate) fn of_lane(
    scheduler: &Scheduler,
    lane: LaneKey,
    worker_reason: PendingReason,
) -> Option<PendingReason> {
    let limits = &scheduler.limits;
    let running_max = scheduler.config.server_limits.running_max;
    if gate::is_server_full(scheduler) {
        return Some(PendingReason::ServerFull);
    }
    let now = scheduler.stepped_at.unwrap_or_default();
    let needs = gate::needs(scheduler, lane);
    if needs.permits().any(|limit| !limits.has_room(limit, now)) {
        return Some(PendingReason::Limited);
    }
    if needs.token.is_some_and(|limit| !limits.has_room(limit, now)) {
        return Some(PendingReason::RateLimited);
    }
    let free_only = lane.is_limited() || running_max.is_some();
    let lacks_slot = free_only && !scheduler.fleet.has_free_slot();
    (lacks_slot && worker_reason == PendingReason::Soon).then_some(PendingReason::Busy)
}

/// The reason for jobs whose limits have room, as far as is known without a look at each key.
pub(crate) fn without_keys(
    scheduler: &Scheduler,
    definition: &Definition,
    worker_reason: PendingReason,
) -> PendingReason {
    let running_max = scheduler.config.server_limits.running_max;
    if worker_reason < PendingReason::ServerFull {
        worker_reason
    } else if gate::is_server_full(scheduler) {
        PendingReason::ServerFull
    } else if (definition.takes_free_slots_only() || running_max.is_some())
        && !scheduler.fleet.has_free_slot()
        && worker_reason == PendingReason::Soon
    {
        PendingReason::Busy
    } else {
        worker_reason
    }
}

/// The reason for jobs whose lanes are parked under a limit. `by_limit` is the reason that the limit itself gives.
pub(crate) fn under_limit(
    scheduler: &Scheduler,
    by_limit: PendingReason,
    worker_reason: PendingReason,
) -> PendingReason {
    worker_reason.min(if gate::is_server_full(scheduler) { PendingReason::ServerFull } else { by_limit })
}
