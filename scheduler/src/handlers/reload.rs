//! Applies the placement rules of a new version of jobs.yaml. Labels and strategies act on jobs that wait with the rules that they were made
//! with. A changed list of workers acts on all jobs of the name at once: attempts on workers that were taken from the list are stopped and
//! their jobs placed again (docs/placement.md).
//!
//! A load may walk over workers, lanes and definitions.

use alloc::vec::Vec;

use protocol::order::StopCause;
use protocol::{Fence, JobId, Now, WorkerId};

use crate::core::Scheduler;
use crate::definition::RetryOn;
use crate::handlers::{assign_lane, queue, stop};
use crate::placement::rules::WorkerSelector;
use crate::queue::LaneKey;

/// Indexes the needs of all definitions again, and enforces lists of workers.
pub(crate) fn apply(scheduler: &mut Scheduler, now: Now) {
    let returning = lanes_without_their_worker(scheduler);
    scheduler.fleet.replace_needs(scheduler.definitions.needs());
    scheduler.ready.unpark_all();
    for (job, fence) in unlisted_attempts(scheduler) {
        let by = "jobs.yaml, which does not list its worker any more".into();
        stop(scheduler, now, job, fence, StopCause::Pinning, by);
    }
    let lanes = lanes_in_order(scheduler);
    requeue_outdated(scheduler, lanes);
    for (lane, before) in returning {
        if list_of(scheduler, lane) != before {
            requeue(scheduler, lane);
        }
    }
    move_hidden_members(scheduler);
}

/// Lanes whose jobs would wait for the worker of their last attempt (`retry.on: same`) if it were listed, with their lists.
fn lanes_without_their_worker(scheduler: &Scheduler) -> Vec<(LaneKey, Vec<WorkerSelector>)> {
    let wants_same = |lane: &LaneKey| {
        let definition = scheduler.definitions.at(lane.definition());
        definition.is_some_and(|definition| definition.retry.on == RetryOn::Same)
    };
    let unpinned = lanes_in_order(scheduler)
        .into_iter()
        .filter(|lane| matches!(lane, LaneKey::Listed(..) | LaneKey::Distinct(..)));
    unpinned.filter(wants_same).map(|lane| (lane, list_of(scheduler, lane))).collect()
}

/// All lanes in the order of their keys: those that are queued again get their turns in this order.
fn lanes_in_order(scheduler: &Scheduler) -> Vec<LaneKey> {
    let mut lanes: Vec<LaneKey> = scheduler.ready.lanes().map(|(lane, _)| lane).collect();
    lanes.sort_unstable();
    lanes
}

fn list_of(scheduler: &Scheduler, lane: LaneKey) -> Vec<WorkerSelector> {
    let need = scheduler.fleet.classes().need_of(lane.definition());
    need.map(|(_, need)| need.workers.to_vec()).unwrap_or_default()
}

/// Jobs that are pinned to a worker do not wait for it if it has another name now, which their definitions do not list.
pub(crate) fn on_renamed(scheduler: &mut Scheduler, id: WorkerId) {
    requeue_outdated(scheduler, scheduler.ready.pinned_lanes(id));
}

fn requeue_outdated(scheduler: &mut Scheduler, mut lanes: Vec<LaneKey>) {
    lanes.retain(|lane| is_outdated(scheduler, *lane));
    for lane in lanes {
        requeue(scheduler, lane);
    }
}

fn requeue(scheduler: &mut Scheduler, lane: LaneKey) {
    for job in scheduler.ready.take_lane(lane) {
        queue(scheduler, job);
    }
}

/// Moves the members of an unfinished batch to the lanes that they will wait in.
fn move_hidden_members(scheduler: &mut Scheduler) {
    let Some(batch) = scheduler.pending_batches.in_progress() else { return };
    let lanes = batch.lanes.keys().copied();
    let outdated: Vec<LaneKey> = lanes.filter(|lane| is_outdated(scheduler, *lane)).collect();
    for lane in outdated {
        for member in scheduler.pending_batches.take_lane(lane) {
            if let Some((lane, key)) = assign_lane(scheduler, member.job()) {
                scheduler.pending_batches.add_to_lane(lane, key);
            }
        }
    }
}

/// Jobs that are queued now would go to another lane: the list of workers has come or gone, or the worker of the last attempt
/// (`retry.on: same`) is not on it any more. [`lanes_without_their_worker`] finds those whose worker is on it again.
fn is_outdated(scheduler: &Scheduler, lane: LaneKey) -> bool {
    let need = scheduler.fleet.classes().need_of(lane.definition());
    let has_list = need.is_some_and(|(_, need)| need.has_list());
    match lane {
        LaneKey::Definition(..) => has_list,
        LaneKey::Listed(..) => !has_list,
        LaneKey::Pinned(only, ..) | LaneKey::PausedPinned(only, ..) => !lists(scheduler, lane, only),
        LaneKey::Distinct(..) | LaneKey::Paused(..) => false,
    }
}

fn unlisted_attempts(scheduler: &Scheduler) -> Vec<(JobId, Fence)> {
    let held = scheduler
        .fleet
        .iter()
        .flat_map(|(id, worker)| worker.holdings.jobs.iter().map(move |job| (id, *job)));
    let attempts = held.filter_map(|(id, job)| {
        let live = scheduler.jobs.get(&job)?;
        let need = scheduler.fleet.classes().need_of(live.definition);
        let worker = scheduler.fleet.worker(id);
        // A worker that has another name now than a running job asked for keeps it.
        let is_listed = need
            .zip(worker)
            .is_none_or(|((_, need), worker)| need.is_listed_by_definition(id, &worker.row.name));
        (!is_listed).then_some((job, live.attempt().map(|attempt| attempt.fence)?))
    });
    attempts.collect()
}

fn lists(scheduler: &Scheduler, lane: LaneKey, id: WorkerId) -> bool {
    let need = scheduler.fleet.classes().need_of(lane.definition());
    let worker = scheduler.fleet.worker(id);
    need.zip(worker).is_none_or(|((_, need), worker)| need.lists(id, &worker.row.name))
}
