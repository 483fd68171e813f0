//! Places waiting jobs on workers with free capacity: `fill` does so in each step, `recall` takes prefetched attempts back, and `set_aside`
//! keeps workers free for jobs that wait for resources. What they and the handlers ask is here: the lane of a job, and the workers that may run it.
//!
//! ```text
//! first job in order ──▶ if no worker can take it, its lane is parked and the next lane follows
//!        │
//!        ▼
//! choice: classes that meet its need; in each the workers with room, free slots before backlogs; ties are random
//!        │
//!        ▼
//! grant: fence and nonce, the job is assigned, the worker holds it
//! ```
//!
//! Backlogs are filled only when no slot is free anywhere. They keep a worker busy while it waits for the
//! network between two jobs.

pub(crate) mod choice;
pub mod exclusion;
pub(crate) mod fill;
mod grant;
pub mod narrowing;
pub(crate) mod recall;
pub(crate) mod recall_for_slot;
pub mod rules;
pub(crate) mod searches;
pub(crate) mod set_aside;
pub(crate) mod successor;

use protocol::{JobId, WorkerId};

use crate::core::Scheduler;
use crate::definition::{Definition, RetryOn};
use crate::fleet::Worker;
use crate::fleet::classes::Need;
use crate::ids::NeedId;
use crate::job::{Job, LastPlacement, LiveState};
use crate::limits::keys::KeySetNo;
use crate::queue::{LaneKey, ParkedFor};
use crate::run_on::{MemberRow, RunOnRole};

/// The workers that may run the jobs of a lane.
pub(crate) fn parked_for(scheduler: &Scheduler, lane: LaneKey) -> ParkedFor {
    let need = scheduler.fleet.classes().need_of(lane.definition()).map(|(need, _)| need);
    // Every definition has a need.
    lane.pinned_to().map_or(ParkedFor::Need(need.unwrap_or(NeedId(u32::MAX))), ParkedFor::Worker)
}

/// The lane of a job: pinned to its last worker if the retry policy says `same`. After an infrastructure
/// failure no job is pinned, nor to a worker that was revoked or that its definition does not list any more.
pub(crate) fn lane_of(scheduler: &Scheduler, id: JobId, job: &Job) -> LaneKey {
    let lane = lane_once_resumed(scheduler, job);
    if scheduler.paused_batch(id, job).is_some() { lane.paused() } else { lane }
}

/// As [`lane_of`], whether the job's batch is paused or not.
pub(crate) fn lane_once_resumed(scheduler: &Scheduler, job: &Job) -> LaneKey {
    let need = scheduler.fleet.classes().need_of(job.definition).map(|(_, need)| need);
    let may_wait_for = |worker: &Worker| {
        worker.row.revoked_at.is_none()
            && need.is_none_or(|need| need.lists(worker.row.worker, &worker.row.name))
    };
    let pinned = scheduler
        .definitions
        .at(job.definition)
        .filter(|definition| definition.retry.on == RetryOn::Same)
        .and_then(|_| job.last_placement())
        .filter(|last| !last.infrastructure_failure)
        .map(|last| last.worker)
        .filter(|worker| scheduler.fleet.worker(*worker).is_some_and(may_wait_for));
    // A member of `run_on: all` waits for its worker, whatever becomes of it.
    let pinned = job.role().pinned_to().or(pinned);
    let distinct = distinct_lane(scheduler, job).filter(|_| pinned.is_none());
    if let Some(lane) = distinct {
        return lane;
    }
    match pinned {
        Some(only) => LaneKey::Pinned(only, job.definition, key_set_of(scheduler, job)),
        None if need.is_some_and(Need::has_list) => {
            LaneKey::Listed(job.definition, key_set_of(scheduler, job))
        }
        None => LaneKey::Definition(job.definition, key_set_of(scheduler, job)),
    }
}

/// The lane of a member that is not pinned: that of the siblings which were nowhere yet, or one of its own, since it may go where it has been.
fn distinct_lane(scheduler: &Scheduler, job: &Job) -> Option<LaneKey> {
    let RunOnRole::Member(MemberRow { job: id, parent, .. }) = job.role() else { return None };
    let of = if job.last_placement().is_some() { id } else { parent };
    Some(LaneKey::Distinct(of, job.definition, key_set_of(scheduler, job)))
}

/// The lane of a job that waits for a slot.
pub(crate) fn lane_in_queue(scheduler: &Scheduler, job: JobId) -> Option<LaneKey> {
    match scheduler.jobs.get(&job)?.live_state {
        LiveState::Queued(lane) => Some(lane),
        LiveState::Scheduled | LiveState::Held(_) | LiveState::Quarantined | LiveState::Parent { .. } => None,
    }
}

/// The keys of a job.
pub(crate) fn key_set_of(scheduler: &Scheduler, job: &Job) -> KeySetNo {
    if job.role() == RunOnRole::Parent {
        return KeySetNo::UNLIMITED;
    }
    let own = job.extras.as_ref().map(|extras| extras.key_set).filter(|key_set| key_set.is_keyed());
    own.unwrap_or_else(|| {
        let definition = scheduler.definitions.at(job.definition);
        let is_limited = definition.is_some_and(|definition| definition.takes_free_slots_only());
        if is_limited { KeySetNo::UNKEYED } else { KeySetNo::UNLIMITED }
    })
}

/// A worker may take jobs of this lane when it has room. Only these of all [obstacles](crate::explain::obstacles::obstacles)
/// are left to check then.
pub(crate) fn may_run(scheduler: &Scheduler, lane: LaneKey, worker: &Worker) -> bool {
    let id = worker.row.worker;
    let Some(definition) = scheduler.definitions.at(lane.definition()) else { return false };
    let classes = scheduler.fleet.classes();
    let meets = classes.need_of(lane.definition()).is_some_and(|(need_id, need)| {
        worker.class().is_some_and(|class| classes.score(need_id, class).is_some())
            && need.lists(id, &worker.row.name)
    });
    meets
        && lane.pinned_to().is_none_or(|only| only == id)
        && lane.distinct_of().is_none_or(|of| siblings_allow(scheduler, of, id))
        && !worker.health.exclusions.covers_definition(definition)
}

/// The worker is not set aside, or it [admits](Worker::admits) the first job of this lane.
pub(crate) fn admits_first(scheduler: &Scheduler, lane: LaneKey, worker: &Worker) -> bool {
    let need = scheduler.fleet.classes().need_of(lane.definition()).map(|(_, need)| need);
    need.zip(scheduler.ready.head(lane)).is_some_and(|(need, head)| worker.admits(head, &need.reserves))
}

/// The job may go to this worker, as far as its siblings are concerned. `of` stands for a lane: a member, or a parent for those of its members
/// that were nowhere yet.
pub(crate) fn siblings_allow(scheduler: &Scheduler, of: JobId, worker: WorkerId) -> bool {
    let parent = scheduler.parent_of(of).unwrap_or(of);
    scheduler.parents.get(parent).is_none_or(|parent| parent.lets(of, worker))
}

/// The next attempt should not run on this worker, because the last one ran there and the retry policy or an
/// infrastructure failure forbids it.
pub(crate) fn avoids(job: &Job, definition: &Definition, worker: WorkerId) -> bool {
    let avoids_last =
        |last: &LastPlacement| last.infrastructure_failure || definition.retry.on == RetryOn::Other;
    job.last_placement().filter(avoids_last).is_some_and(|last| last.worker == worker)
}
