//! Sets a worker aside for a job that has waited long for resources.
//!
//! Smaller jobs pass a job that waits for room, so it could wait as long as they arrive. After a while a worker is set aside for it: the one
//! that lacks least for it. From then on that worker [admits](Worker::admits) only jobs that go before it, or that leave to it all that it
//! needs.
//!
//! ```text
//! waits for resources ──▶ long enough ──▶ set aside ──▶ attempts end there ──▶ room ──▶ the job starts, and the worker is open again
//!                                            │
//!                                            └──▶ the job does not wait any more, or may not run there: open again
//! ```
//!
//! Nothing of this is stored: after a restart of the server the jobs have waited as long as before.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::{JobId, Now, WorkerId};

use super::searches::not_before;
use super::{avoids, lane_in_queue, may_run, parked_for};
use crate::core::Scheduler;
use crate::fleet::{SetAside, Worker};
use crate::ids::DefinitionNo;
use crate::limits::gate;
use crate::queue::{LaneKey, ParkedFor, QueueKey};
use crate::reservation::Reservation;
use crate::timers::UptimeTimer;

/// Workers that are set aside at once. Each is looked at in each step.
const WORKERS_MAX: usize = 8;
/// Lanes whose first jobs one search looks at. The next search goes on after them.
const LANES_PER_SEARCH: usize = 32;
/// Workers after which a search looks at no further lane.
const WORKERS_PER_SEARCH: usize = 10_000;
/// Interval between searches. A search costs more than a step, and jobs wait for minutes before.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Opens the workers again whose jobs do not wait for them any more. Returns true if there were any.
pub(crate) fn open_again(scheduler: &mut Scheduler, now: Now) -> bool {
    let set_aside: Vec<(WorkerId, JobId)> = scheduler.fleet.workers_set_aside().collect();
    let mut has_opened = false;
    for (id, job) in set_aside {
        if is_awaited(scheduler, id, job, now) {
            follow_position(scheduler, id, job);
        } else {
            scheduler.fleet.end_set_aside(id);
            scheduler.changed = true;
            has_opened = true;
        }
    }
    has_opened
}

/// Keeps the worker set aside for the job at its present position: it may have got another priority or due time.
fn follow_position(scheduler: &mut Scheduler, id: WorkerId, job: JobId) {
    let key = scheduler.jobs.get(&job).map(|it| it.queue_key(scheduler.config.priority_ageing, job));
    let before = scheduler.fleet.worker(id).and_then(Worker::set_aside);
    if let Some((key, before)) = key.zip(before)
        && before.key != key
    {
        let after = SetAside { key, ..before.clone() };
        scheduler.fleet.set_aside(id, after);
    }
}

/// The job waits for room on this worker. It goes on waiting while the worker reconnects.
fn is_awaited(scheduler: &Scheduler, id: WorkerId, job: JobId, now: Now) -> bool {
    let (Some(worker), Some(lane)) = (scheduler.fleet.worker(id), lane_in_queue(scheduler, job)) else {
        return false;
    };
    let is_here = worker.is_open() || (worker.may_reconnect() && !worker.row.cordoned);
    is_here
        && may_get_attempts(worker)
        && is_unblocked(scheduler, lane, now)
        && may_run(scheduler, lane, worker)
}

/// It gets attempts once it is connected and has room.
fn may_get_attempts(worker: &Worker) -> bool {
    worker.slots() > 0 && worker.health.allows_more()
}

/// Neither a pause nor a limit keeps the jobs of this lane from their start.
fn is_unblocked(scheduler: &Scheduler, lane: LaneKey, now: Now) -> bool {
    !scheduler.ready.is_lane_paused(lane) && gate::blocking(scheduler, lane, now).is_none()
}

/// Decides anew which workers are set aside, after jobs were placed.
pub(crate) fn review(scheduler: &mut Scheduler, now: Now) {
    let Some(wait) = scheduler.config.set_aside_after else { return };
    // Its job has just been placed, or another one has taken the permit. The next step, at once, assigns others.
    scheduler.has_more_to_place |= open_again(scheduler, now);
    if !scheduler.has_more_to_place && scheduler.ready.may_wait_for_resources() {
        find_worker(scheduler, wait, now);
    }
}

/// Sets a worker aside for the next job that has waited for so long and has none yet.
fn find_worker(scheduler: &mut Scheduler, wait: Duration, now: Now) {
    if let Some(at) = not_before(scheduler.searches.to_set_aside, SEARCH_EVERY, now) {
        scheduler.timers.set_uptime(at, UptimeTimer::SetAside);
        return;
    }
    scheduler.searches.to_set_aside = Some(now.up);
    scheduler.timers.set_uptime(now.up + SEARCH_EVERY, UptimeTimer::SetAside);
    gate::wake(scheduler, now);
    let after = scheduler.searches.looked_until;
    let lanes = gate::select_unblocked(scheduler, now, |ready| {
        let next = ready.next_for_resources(after, LANES_PER_SEARCH);
        if next.is_empty() { ready.next_for_resources(None, LANES_PER_SEARCH) } else { next }
    });
    let Some(lanes) = lanes else { return };
    let mut search = Search::new(scheduler, wait, now);
    let mut looked_until = None;
    let mut found = None;
    for (key, lane) in lanes {
        if search.compared >= WORKERS_PER_SEARCH || found.is_some() {
            break;
        }
        looked_until = Some(key);
        found = search.worker_for(key, lane);
    }
    scheduler.searches.looked_until = looked_until;
    if let Some((worker, job)) = found {
        scheduler.fleet.set_aside(worker, job);
        scheduler.changed = true;
        // Jobs without limits were held back behind one that could have had a slot there.
        scheduler.has_more_to_place = true;
    }
}

/// One search for a worker to set aside.
struct Search<'s> {
    scheduler: &'s Scheduler,
    /// The time that a job must have waited.
    wait: Duration,
    now: Now,
    /// Jobs that have a worker.
    served: BTreeSet<JobId>,
    /// Lanes of these definitions find none. Their keys make no difference.
    unplaceable: BTreeSet<(ParkedFor, DefinitionNo, Option<JobId>)>,
    /// Workers that were compared.
    compared: usize,
}

impl<'s> Search<'s> {
    fn new(scheduler: &'s Scheduler, wait: Duration, now: Now) -> Self {
        let served = scheduler.fleet.workers_set_aside().map(|(_, job)| job).collect();
        Self { scheduler, wait, now, served, unplaceable: BTreeSet::new(), compared: 0 }
    }

    /// The worker to set aside for the first job of this lane, if it needs one and there is one.
    fn worker_for(&mut self, key: QueueKey, lane: LaneKey) -> Option<(WorkerId, SetAside)> {
        let kind = (parked_for(self.scheduler, lane), lane.definition(), lane.distinct_of());
        let needs_one = !self.served.contains(&key.job())
            && !self.unplaceable.contains(&kind)
            && self.has_waited(key, lane)
            && !self.scheduler.ready.is_lane_paused(lane)
            && !gate::has_taker(self.scheduler, lane);
        if !needs_one {
            return None;
        }
        let found = self.nearest(key, lane);
        if found.is_none() {
            self.unplaceable.insert(kind);
        }
        found
    }

    /// The job reserves resources, and has waited for long enough since it became due, and since another job of its definition started.
    fn has_waited(&self, key: QueueKey, lane: LaneKey) -> bool {
        let Some(job) = self.scheduler.jobs.get(&key.job()) else { return false };
        let definition = self.scheduler.definitions.at(job.definition);
        let reserves = definition.is_some_and(|it| Reservation::is_made_by(&it.container.resources));
        // Members of other parents may start where a sibling keeps this one away: their starts say nothing about its wait.
        let last_start = self.scheduler.ready.last_start(lane).filter(|_| lane.distinct_of().is_none());
        let since = last_start.map_or(job.due_at, |start| start.max(job.due_at));
        reserves && self.now.utc.since(since) >= self.wait
    }

    /// The worker that lacks least for this job, of all that it may have. One that it should avoid comes last, and before it those that
    /// are set aside for later jobs.
    fn nearest(&mut self, key: QueueKey, lane: LaneKey) -> Option<(WorkerId, SetAside)> {
        let Scheduler { fleet, jobs, definitions, .. } = self.scheduler;
        let may_be_taken = |worker: &Worker| match worker.set_aside() {
            Some(other) => key < other.key,
            None => self.served.len() < WORKERS_MAX,
        };
        let mut set_aside = fleet.workers_set_aside().filter_map(|(id, _)| fleet.worker(id));
        if self.served.len() >= WORKERS_MAX && !set_aside.any(may_be_taken) {
            return None;
        }
        let classes = fleet.classes();
        let (need_id, need) = classes.need_of(lane.definition())?;
        let job = jobs.get(&key.job())?;
        let definition = definitions.at(job.definition)?;
        let candidates: Vec<WorkerId> = match lane.pinned_to() {
            Some(only) => alloc::vec![only],
            None if !need.has_list() => {
                classes.meeting(need_id).flat_map(|(class, _)| classes.workers_of(class)).collect()
            }
            None => need.list().iter().flat_map(|selector| fleet.selected(selector)).collect(),
        };
        self.compared += candidates.len();
        let workers = candidates.into_iter().filter_map(|id| fleet.worker(id));
        let able = workers.filter(|worker| {
            worker.is_open()
                && may_get_attempts(worker)
                && may_be_taken(worker)
                && may_run(self.scheduler, lane, worker)
        });
        let nearest = able.min_by_key(|worker| {
            let id = worker.row.worker;
            let lacks = worker.holdings.in_use().shortage(&worker.capacity.offer, &need.reserves);
            let lacks = u64::from(lacks).max(slot_shortage(worker));
            (avoids(job, definition, id), worker.set_aside().is_some(), lacks, worker.holdings.count(), id)
        })?;
        Some((nearest.row.worker, SetAside { key, reserves: need.reserves.clone() }))
    }
}

/// Attempts that must end before a slot is free, in thousandths of the slots.
fn slot_shortage(worker: &Worker) -> u64 {
    let slots = u64::from(worker.slots());
    let lacking = (u64::from(worker.holdings.count()) + 1).saturating_sub(slots);
    lacking * 1_000 / slots.max(1)
}
