//! Empties a backlog for a job that takes a free slot only: one with limits, or one that reserves resources.
//!
//! Room in a backlog is of no use to such a job, and a worker fills its slots from its backlog first. So the first of these jobs recalls all
//! of one worker's backlog, if everything there has a lower priority; the next slot of that worker is then the job's. One backlog is emptied
//! for a job, that of the worker with the fewest attempts in it.

use alloc::vec::Vec;

use protocol::{JobId, Now, Uptime, WorkerId};

use super::recall::{self, BacklogEntry, Recalls};
use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::limits::gate;
use crate::queue::{AgedPriority, LaneKey, QueueKey};
use crate::timers::Alarm;

/// The job for which a backlog was emptied last, and its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EmptiedBacklog {
    job: JobId,
    worker: WorkerId,
}

/// Recalls a backlog of lower priority for the first waiting job that lacks only a free slot.
pub(crate) fn recall_for_slot(scheduler: &mut Scheduler, now: Now) {
    let Some(lowest) = scheduler.fleet.lowest_prefetched() else { return };
    if scheduler.has_more_to_place {
        return;
    }
    let Some((key, lane)) = first_waiter(scheduler, lowest, now) else { return };
    if is_served(scheduler, key, lane) {
        return;
    }
    if let Some(at) =
        scheduler.search_times.for_slot.map(|at| at + recall::SEARCH_EVERY).filter(|at| *at > now.up)
    {
        scheduler.timers.set_alarm(at, Alarm::Recall);
        return;
    }
    scheduler.search_times.for_slot = Some(now.up);

    let backlogs = scheduler.fleet.with_backlog().filter(|worker| worker.is_open());
    let able = backlogs.filter(|worker| gate::can_run(scheduler, worker, lane));
    let best = able.filter_map(|worker| Some((ripe_at(scheduler, worker, key)?.max(now.up), worker)));
    let Some((ripe_at, worker)) = best.min_by_key(|(at, worker)| (*at, worker.queued(), worker.row.worker))
    else {
        return;
    };
    if ripe_at > now.up {
        scheduler.timers.set_alarm(ripe_at, Alarm::Recall);
        return;
    }
    let mut recalls = Recalls::default();
    for entry in recall::backlog_entries(scheduler, worker).filter(|entry| !entry.attempt.recalled) {
        recalls.add(&entry, now);
    }
    scheduler.emptied_backlog = Some(EmptiedBacklog { job: key.job(), worker: worker.row.worker });
    recalls.send(scheduler, now);
}

/// The first waiting job above this priority that takes free slots only, and whose limits have room. Lanes without room in their limits are
/// parked on the way.
fn first_waiter(scheduler: &mut Scheduler, above: AgedPriority, now: Now) -> Option<(QueueKey, LaneKey)> {
    loop {
        let candidates = [scheduler.ready.first_slot_waiter(), scheduler.ready.first_limited()];
        let first = candidates.into_iter().flatten().min_by_key(|(key, _)| *key);
        let (key, lane) = first.filter(|(key, _)| key.priority() > above)?;
        match gate::blocking(scheduler, lane, now) {
            Some(limit) => gate::park_under(scheduler, lane, limit, now),
            None => return Some((key, lane)),
        }
    }
}

/// A backlog was emptied for this job, and nothing has come into it since.
fn is_served(scheduler: &Scheduler, key: QueueKey, lane: LaneKey) -> bool {
    let emptied = scheduler.emptied_backlog.filter(|it| it.job == key.job());
    let worker = emptied.and_then(|it| scheduler.fleet.worker(it.worker)).filter(|worker| worker.is_open());
    worker.is_some_and(|worker| {
        gate::can_run(scheduler, worker, lane)
            && recall::backlog_entries(scheduler, worker).all(|entry| entry.attempt.recalled)
    })
}

/// When the whole backlog of a worker may be recalled for a job at this position; none if something in it stays there, or if all of it is
/// recalled already.
fn ripe_at(scheduler: &Scheduler, worker: &Worker, key: QueueKey) -> Option<Uptime> {
    let entries: Vec<BacklogEntry<'_>> =
        recall::backlog_entries(scheduler, worker).filter(|entry| !entry.attempt.recalled).collect();
    let gives_way = |entry: &BacklogEntry<'_>| entry.key.priority() < key.priority() && !entry.is_fixed();
    entries.iter().all(gives_way).then(|| entries.iter().map(BacklogEntry::ripe_at).max())?
}
