//! Empties a backlog for a job that takes a free slot only: one with limits, or one that reserves resources.
//!
//! Room in a backlog is of no use to such a job, and a worker fills its slots from its backlog first. So the job recalls all of one worker's
//! backlog, if everything there has a lower priority; the next slot of that worker is then the job's. One backlog is emptied for a job:
//! the shortest of those that are old enough.

use alloc::vec::Vec;

use protocol::{JobId, Now, Uptime};

use super::recall::{self, BacklogEntry, Recalls};
use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::job::LiveState;
use crate::limits::gate;
use crate::placement;
use crate::placement::searches::{BACKLOGS_EVERY, not_before};
use crate::queue::{AgedPriority, LaneKey, QueueKey};
use crate::timers::UptimeTimer;

/// A backlog that may be recalled as a whole.
struct Backlog<'s> {
    worker: &'s Worker,
    /// The highest priority in it.
    highest: AgedPriority,
    /// When all of it will be old enough.
    ripe_at: Uptime,
}

/// Recalls a backlog of lower priority for a waiting job that lacks only a free slot. One search recalls one backlog.
pub(crate) fn recall_for_slot(scheduler: &mut Scheduler, now: Now) {
    let Some(lowest) = scheduler.fleet.lowest_prefetched() else { return };
    if scheduler.has_more_to_place {
        return;
    }
    gate::wake(scheduler, now);
    if scheduler.ready.highest_for_free_slot().is_none_or(|highest| highest <= lowest) {
        return;
    }
    // A search walks over all backlogs, so it is not done in each step.
    if let Some(at) = not_before(scheduler.searches.for_slot, BACKLOGS_EVERY, now) {
        scheduler.timers.set_uptime(at, UptimeTimer::Recall);
        return;
    }
    scheduler.searches.for_slot = Some(now.up);
    forget_started(scheduler);

    let firsts = gate::select_unblocked(scheduler, now, |ready| ready.first_for_free_slots(JOBS_MAX));
    let Some(mut waiting) = firsts else {
        scheduler.timers.set_uptime(now.up + BACKLOGS_EVERY, UptimeTimer::Recall);
        return;
    };
    waiting.retain(|(key, lane)| key.priority() > lowest && !is_served(scheduler, *key, *lane));
    if waiting.is_empty() {
        return;
    }
    let open = scheduler.fleet.with_backlog().filter(|worker| worker.is_open());
    let backlogs: Vec<Backlog<'_>> = open.filter_map(|worker| Backlog::of(scheduler, worker)).collect();
    let found =
        waiting.iter().find_map(|(key, lane)| Some((key, best(scheduler, &backlogs, (*key, *lane), now)?)));
    let Some((key, Backlog { worker, ripe_at, .. })) = found else { return };
    let id = worker.row.worker;
    if *ripe_at > now.up {
        scheduler.timers.set_uptime(*ripe_at, UptimeTimer::Recall);
        return;
    }
    let mut recalls = Recalls::default();
    for entry in entries(scheduler, worker) {
        recalls.add(&entry, now);
    }
    scheduler.searches.emptied.insert(key.job(), id);
    recalls.send(scheduler, now);
}

/// The backlog to empty for this job. A worker that the job does not avoid comes first, then the backlog that can be recalled first, then the
/// shortest.
fn best<'b, 's>(
    scheduler: &Scheduler,
    backlogs: &'b [Backlog<'s>],
    (key, lane): (QueueKey, LaneKey),
    now: Now,
) -> Option<&'b Backlog<'s>> {
    let job = scheduler.jobs.get(&key.job())?;
    let definition = scheduler.definitions.at(job.definition)?;
    let able = backlogs.iter().filter(|it| {
        it.highest < key.priority()
            && gate::can_run(scheduler, it.worker, lane)
            && !it.worker.is_set_aside_before(key)
    });
    able.min_by_key(|it| {
        let id = it.worker.row.worker;
        (placement::avoids(job, definition, id), it.ripe_at.max(now.up), it.worker.queued(), id)
    })
}

/// A backlog was emptied for this job, and nothing has come into it since.
fn is_served(scheduler: &Scheduler, key: QueueKey, lane: LaneKey) -> bool {
    let emptied = scheduler.searches.emptied.get(&key.job());
    let worker = emptied.and_then(|id| scheduler.fleet.worker(*id)).filter(|worker| worker.is_open());
    worker.is_some_and(|worker| {
        !worker.is_set_aside_before(key)
            && gate::can_run(scheduler, worker, lane)
            && entries(scheduler, worker).next().is_none()
    })
}

/// Forgets jobs that do not wait any more.
fn forget_started(scheduler: &mut Scheduler) {
    let jobs = &scheduler.jobs;
    let waits = |id: &JobId| jobs.get(id).is_some_and(|job| matches!(job.live_state, LiveState::Queued(_)));
    scheduler.searches.emptied.retain(|id, _| waits(id));
}

impl<'s> Backlog<'s> {
    /// The backlog of a worker; `None` if something in it stays there, or if all of it is recalled already.
    fn of(scheduler: &'s Scheduler, worker: &'s Worker) -> Option<Self> {
        let mut backlog: Option<Self> = None;
        for entry in entries(scheduler, worker) {
            if entry.is_fixed() {
                return None;
            }
            let (highest, ripe_at) = (entry.key.priority(), entry.ripe_at());
            backlog = Some(match backlog {
                None => Self { worker, highest, ripe_at },
                Some(it) => {
                    Self { worker, highest: it.highest.max(highest), ripe_at: it.ripe_at.max(ripe_at) }
                }
            });
        }
        backlog
    }
}

/// The attempts of a backlog that are not recalled.
fn entries<'s>(scheduler: &'s Scheduler, worker: &'s Worker) -> impl Iterator<Item = BacklogEntry<'s>> {
    recall::backlog_entries(scheduler, worker).filter(|entry| !entry.attempt.recalled)
}

/// The number of lanes whose first jobs one search looks at.
const JOBS_MAX: usize = 32;
