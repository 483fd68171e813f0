//! Sets a worker aside for a job that has waited long for resources.
//!
//! Smaller jobs pass a job that waits for room, so it could wait as long as they arrive. After a while a worker is set aside for it: the one
//! that lacks least for it. Nothing is assigned to that worker until it has room for the job, or until a job that goes before it in order
//! could start there.
//!
//! ```text
//! waits for resources ──▶ old enough ──▶ set aside ──▶ attempts end there ──▶ room ──▶ open again, and the job is first in order
//!                                            │
//!                                            └──▶ the job does not wait any more, or may not run there: open again
//! ```
//!
//! Nothing of this is stored: after a restart of the server the jobs have waited as long as before.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::{JobId, Now, WorkerId};

use super::searches::{BACKLOGS_EVERY, not_before};
use super::{avoids, lane_in_queue, may_run, parked_for};
use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::ids::DefinitionNo;
use crate::limits::gate;
use crate::queue::{LaneKey, ParkedFor, QueueKey};
use crate::reservation::Reservation;
use crate::timers::Alarm;

/// Workers that are set aside at once. Each is looked at in each step.
const WORKERS_MAX: usize = 8;
/// Lanes whose first jobs one search looks at.
const LANES_MAX: usize = 32;
/// Interval between searches. They walk over the workers that a job may run on, and jobs wait for minutes before.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Opens the workers again that have room for their jobs, or whose jobs do not wait for them any more. Returns true if there were any.
pub(crate) fn open_again(scheduler: &mut Scheduler, now: Now) -> bool {
    let set_aside: Vec<(WorkerId, JobId)> = scheduler.fleet.workers_set_aside().collect();
    let mut has_opened = false;
    for (id, job) in set_aside {
        if !is_awaited(scheduler, id, job, now) {
            scheduler.fleet.end_set_aside(id);
            scheduler.changed = true;
            has_opened = true;
        }
    }
    has_opened
}

/// The job waits for room on this worker.
fn is_awaited(scheduler: &Scheduler, id: WorkerId, job: JobId, now: Now) -> bool {
    let (Some(worker), Some(lane)) = (scheduler.fleet.worker(id), lane_in_queue(scheduler, job)) else {
        return false;
    };
    is_unblocked(scheduler, lane, now)
        && takes_attempts(worker)
        && may_run(scheduler, lane, worker)
        && !(worker.has_free_slot() && gate::can_run(scheduler, worker, lane))
}

/// The worker gets attempts once it has room.
fn takes_attempts(worker: &Worker) -> bool {
    worker.is_open() && worker.slots() > 0 && worker.health.allows_more()
}

/// Neither a pause nor a limit keeps the jobs of this lane from their start.
fn is_unblocked(scheduler: &Scheduler, lane: LaneKey, now: Now) -> bool {
    !scheduler.ready.is_paused(lane.definition()) && gate::blocking(scheduler, lane, now).is_none()
}

/// Decides anew which workers are set aside, after jobs were placed: opens those that an earlier job could have, and sets one aside for a
/// job that has waited long.
pub(crate) fn review(scheduler: &mut Scheduler, now: Now) {
    let Some(after) = scheduler.config.set_aside_after else { return };
    // Its job has just been placed elsewhere, or another one has taken the permit. The next step, at once, assigns others.
    scheduler.has_more_to_place |= open_again(scheduler, now);
    if scheduler.has_more_to_place {
        return;
    }
    if scheduler.fleet.workers_set_aside().len() > 0 {
        give_to_earlier(scheduler, now);
    }
    if scheduler.ready.may_wait_for_resources() {
        find_worker(scheduler, after, now);
    }
}

/// Opens the workers again that an earlier job could have. The next step, at once, assigns it.
fn give_to_earlier(scheduler: &mut Scheduler, now: Now) {
    if let Some(at) = not_before(scheduler.searches.for_earlier, BACKLOGS_EVERY, now) {
        scheduler.timers.set_alarm(at, Alarm::SetAside);
        return;
    }
    scheduler.searches.for_earlier = Some(now.up);
    let set_aside: Vec<(WorkerId, JobId)> = scheduler.fleet.workers_set_aside().collect();
    for (id, job) in set_aside {
        let key = scheduler.jobs.get(&job).map(|it| it.queue_key(scheduler.config.priority_ageing, job));
        let worker = scheduler.fleet.worker(id);
        if worker.zip(key).is_some_and(|(worker, key)| goes_to_earlier(scheduler, worker, key, now)) {
            scheduler.fleet.end_set_aside(id);
            scheduler.changed = true;
            scheduler.has_more_to_place = true;
        }
    }
}

/// Sets a worker aside for the first job that has waited for so long and has none yet.
fn find_worker(scheduler: &mut Scheduler, after: Duration, now: Now) {
    if let Some(at) = not_before(scheduler.searches.to_set_aside, SEARCH_EVERY, now) {
        scheduler.timers.set_alarm(at, Alarm::SetAside);
        return;
    }
    scheduler.searches.to_set_aside = Some(now.up);
    scheduler.timers.set_alarm(now.up + SEARCH_EVERY, Alarm::SetAside);
    gate::wake(scheduler, now);
    let served: BTreeSet<JobId> = scheduler.fleet.workers_set_aside().map(|(_, job)| job).collect();
    if served.len() >= WORKERS_MAX {
        return;
    }
    let mut unplaceable: BTreeSet<(ParkedFor, DefinitionNo, Option<JobId>)> = BTreeSet::new();
    let found = scheduler.ready.first_for_resources(LANES_MAX).into_iter().find_map(|(key, lane)| {
        let job = scheduler.jobs.get(&key.job())?;
        let definition = scheduler.definitions.at(job.definition)?;
        let has_waited = now.utc.since(job.due_at) >= after;
        let reserves = Reservation::is_made_by(&definition.container.resources);
        let is_next = has_waited && reserves && !served.contains(&key.job());
        // Other keys of the same definition find no worker either.
        let kind = (parked_for(scheduler, lane), lane.definition(), lane.distinct_of());
        let lacks_room = is_next && is_unblocked(scheduler, lane, now) && !gate::has_taker(scheduler, lane);
        if !lacks_room || !unplaceable.insert(kind) {
            return None;
        }
        Some((nearest(scheduler, key, lane, now)?, key.job()))
    });
    if let Some((worker, job)) = found {
        scheduler.fleet.set_aside(worker, job);
        scheduler.changed = true;
        // Jobs without limits were held back behind one that could have had a slot there.
        scheduler.has_more_to_place = true;
    }
}

/// The worker that lacks least for this job, of all that it may have. One that it should avoid comes last.
fn nearest(scheduler: &Scheduler, key: QueueKey, lane: LaneKey, now: Now) -> Option<WorkerId> {
    let classes = scheduler.fleet.classes();
    let (need_id, need) = classes.need_of(lane.definition())?;
    let job = scheduler.jobs.get(&key.job())?;
    let definition = scheduler.definitions.at(job.definition)?;
    let candidates: Vec<WorkerId> = match lane.pinned_to() {
        Some(only) => alloc::vec![only],
        None if need.workers.is_empty() => {
            classes.meeting(need_id).flat_map(|(class, _)| classes.workers_of(class)).collect()
        }
        None => need.workers.iter().flat_map(|selector| scheduler.fleet.selected(selector)).collect(),
    };
    let mut ranked: Vec<_> = candidates
        .into_iter()
        .filter_map(|id| scheduler.fleet.worker(id))
        .filter(|worker| takes_attempts(worker) && worker.set_aside_for().is_none())
        .filter(|worker| may_run(scheduler, lane, worker))
        .map(|worker| {
            let id = worker.row.worker;
            let lacks = worker.holdings.in_use().shortage(&worker.capacity.offer, &need.reserves);
            (avoids(job, definition, id), lacks, worker.holdings.count(), id)
        })
        .collect();
    ranked.sort_unstable();
    let may_have = |id: &WorkerId| {
        let worker = scheduler.fleet.worker(*id);
        worker.is_some_and(|worker| !goes_to_earlier(scheduler, worker, key, now))
    };
    ranked.into_iter().map(|(.., id)| id).find(may_have)
}

/// A waiting job that goes before this one could run on the worker, and has no other one set aside.
fn goes_to_earlier(scheduler: &Scheduler, worker: &Worker, key: QueueKey, now: Now) -> bool {
    let id = worker.row.worker;
    let classes = scheduler.fleet.classes();
    let needs = worker.class().into_iter().flat_map(|class| classes.needs_met(class, id, &worker.row.name));
    let parked_for = needs.map(ParkedFor::Need).chain([ParkedFor::Worker(id)]);
    let mut before = scheduler.ready.before(key, parked_for, LANES_MAX);
    let is_served = |key: QueueKey| scheduler.fleet.workers_set_aside().any(|(_, job)| job == key.job());
    before.any(|(key, lane)| {
        may_run(scheduler, lane, worker) && is_unblocked(scheduler, lane, now) && !is_served(key)
    })
}
