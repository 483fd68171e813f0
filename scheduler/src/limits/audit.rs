//! The invariants of limits, by a walk over all jobs. For tests only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::order::StopCause;
use protocol::{JobId, Now, WorkerId};

use crate::core::Scheduler;
use crate::fleet::{FULL, Worker};
use crate::job::{Job, LiveState};
use crate::limits::LimitNo;
use crate::limits::contenders::Contenders;
use crate::limits::gate;
use crate::placement;
use crate::queue::LaneKey;

/// Differences between the counts of limits and what the jobs say.
pub(crate) fn faults(scheduler: &Scheduler) -> Vec<String> {
    let mut faults = Vec::new();
    let mut users: BTreeMap<LimitNo, (u64, BTreeSet<JobId>)> = BTreeMap::new();
    let mut contenders: BTreeMap<LimitNo, Contenders> = BTreeMap::new();
    let mut lanes = BTreeSet::new();
    let mut held = 0;
    for (id, job) in &scheduler.jobs {
        let key_set = placement::key_set_of(scheduler, job);
        let is_held = matches!(job.live_state, LiveState::Held(_));
        held += usize::from(is_held);
        if key_set.is_limited() {
            lanes.insert((job.definition, key_set));
        }
        let needs = scheduler.limits.needs(job.definition, key_set);
        for limit in needs.all() {
            let (jobs, holders) = users.entry(limit).or_default();
            *jobs += 1;
            if is_held && needs.permits().any(|permit| permit == limit) {
                holders.insert(*id);
            }
        }
        if let Some(permit) = needs.permit {
            count(scheduler, contenders.entry(permit).or_default(), *id, job);
        }
        if let LiveState::Queued(lane) = job.live_state
            && lane.key_set() != key_set
        {
            faults.push(format!("job {id} waits in the lane of other keys"));
        }
    }
    if held != scheduler.limits.held {
        faults.push(format!("{held} jobs are held, and {} are counted", scheduler.limits.held));
    }
    if lanes.len() != scheduler.limits.lanes() {
        faults.push("limits are kept for jobs that do not exist".into());
    }
    for (number, jobs, holders) in scheduler.limits.all() {
        let (right, holding) = users.remove(&number).unwrap_or_default();
        if (right, &holding) != (jobs, holders) {
            faults.push(format!(
                "limit {number:?} counts {jobs} jobs with holders {holders:?}, not {right} with {holding:?}"
            ));
        }
        let competing = contenders.remove(&number).unwrap_or_default();
        if scheduler.limits.contenders_of(number).is_some_and(|counted| *counted != competing) {
            let counted = scheduler.limits.contenders_of(number);
            faults.push(format!("{counted:?} compete for limit {number:?}, not {competing:?}"));
        }
        if jobs == 0 && scheduler.limits.recovered(number).is_none() {
            faults.push(format!("limit {number:?} is kept and nobody needs it"));
        }
    }
    if let Some(number) = users.keys().next() {
        faults.push(format!("limit {number:?} does not exist, and jobs need it"));
    }
    faults
}

/// Counts a job among those that compete for its permit.
fn count(scheduler: &Scheduler, contenders: &mut Contenders, id: JobId, job: &Job) {
    let is_leaving = match &job.live_state {
        LiveState::Queued(_) if !scheduler.pending_batches.hides(id) => {
            contenders.queued += 1;
            false
        }
        LiveState::Held(attempt) => attempt.stopping == Some(StopCause::Cancel),
        _ => return,
    };
    if is_leaving {
        contenders.leaving.insert(id);
    } else if gate::cancels_oldest(scheduler, job.definition) {
        contenders.oldest.insert(id);
    }
}

/// No limit keeps the jobs of this lane from a worker with room.
pub(crate) fn may_start(scheduler: &Scheduler, lane: LaneKey, worker: WorkerId) -> bool {
    let now = now(scheduler);
    let running_max = scheduler.config.server_limits.running_max;
    let has_free_slot =
        scheduler.fleet.worker(worker).and_then(Worker::listed_at).is_some_and(|(load, _)| load < FULL);
    if running_max.is_some_and(|max| scheduler.limits.held >= max) {
        return false;
    }
    if lane.is_limited() || running_max.is_some() {
        return has_free_slot && gate::blocking(scheduler, lane, now).is_none();
    }
    let head = scheduler.ready.head(lane);
    let goes_before = |other: LaneKey| {
        let is_earlier = scheduler.ready.head(other).zip(head).is_some_and(|(other, own)| other < own);
        let is_paused = scheduler.ready.is_lane_paused(other);
        other.is_limited() && is_earlier && !is_paused && gate::blocking(scheduler, other, now).is_none()
    };
    let lacks_slot = |other: LaneKey| {
        let open = scheduler.fleet.open();
        let mut with_room = open.chain(scheduler.fleet.set_aside_with_room());
        with_room.any(|worker| {
            gate::can_run(scheduler, worker, other) && placement::admits_first(scheduler, other, worker)
        })
    };
    // Its avoided worker may have the free slot.
    let avoids = |job: &Job| job.last_placement().is_some();
    let is_choosy = head.and_then(|head| scheduler.jobs.get(&head.job())).is_some_and(avoids);
    let mut lanes = scheduler.ready.lanes().map(|(other, _)| other);
    (has_free_slot && !is_choosy) || !lanes.any(|other| goes_before(other) && lacks_slot(other))
}

fn now(scheduler: &Scheduler) -> Now {
    Now { up: scheduler.stepped_at.unwrap_or_default(), ..Now::default() }
}
