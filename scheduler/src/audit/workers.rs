//! Invariants of a worker: the attempts that it holds, its timers, its heartbeat.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::WorkerId;

use crate::core::Scheduler;
use crate::fleet::Worker;
use crate::handlers;
use crate::job::{Attempt, Job};
use crate::timers::{UptimeTimer, WallTimer};

/// A worker holds the attempts that it lists, and its timers and heartbeat are those that they need.
pub(super) fn audit_worker(scheduler: &Scheduler, id: WorkerId, worker: &Worker, faults: &mut Vec<String>) {
    faults.extend(unwatched(scheduler, id, worker).map(|fault| format!("worker {id}: {fault}")));
    for job in &worker.holdings.jobs {
        let holder = scheduler.jobs.get(job).and_then(Job::attempt).map(|attempt| attempt.worker);
        if holder != Some(id) {
            faults.push(format!("worker {id} lists job {job}, which is held by {holder:?}"));
        }
    }
    for token in worker.holdings.unmanaged.keys() {
        if scheduler.jobs.get(&token.job).and_then(Job::attempt).is_some_and(|attempt| attempt.is(*token, id))
        {
            faults.push(format!("worker {id} has {token}, which is listed as unmanaged and is current"));
        }
    }
    if worker.health.breaker.probe().is_some_and(|probe| !worker.holdings.jobs.contains(&probe)) {
        faults.push(format!("worker {id} waits for a probe that it does not hold"));
    }
    let heartbeat = worker.link.heartbeat().unwrap_or(scheduler.config.intervals.heartbeat);
    if worker.link.is_ready()
        && handlers::wanted_heartbeat(scheduler, id).is_some_and(|wanted| wanted < heartbeat)
    {
        faults.push(format!("worker {id} has a longer heartbeat interval than its attempts need"));
    }
    for key in &worker.holdings.prefetched {
        if !scheduler.jobs.get(&key.job()).and_then(Job::attempt).is_some_and(Attempt::is_prefetched) {
            faults.push(format!("worker {id}: job {} is not in its backlog", key.job()));
        }
    }
}

/// An event that must happen to this worker and has no timer.
fn unwatched(scheduler: &Scheduler, id: WorkerId, worker: &Worker) -> Option<&'static str> {
    let watched = |at, alarm| scheduler.timers.has_uptime(at, alarm);
    if worker.claims.clones_until.is_some_and(|at| !watched(at, UptimeTimer::ClonesGone(id))) {
        Some("the end of its cloned state has no timer")
    } else if worker.lease.alarm.is_some_and(|at| !watched(at, UptimeTimer::LeaseEnd(id))) {
        Some("its lease has no timer")
    } else if worker.lease.alarm.is_none() && !worker.lease.is_expired {
        Some("it is reachable and its lease has no end")
    } else if worker.health.exclusions.ends().any(|at| !watched(at, UptimeTimer::ExclusionEnd(id))) {
        Some("the end of its exclusion has no timer")
    } else if !drain_ends(scheduler, id, worker) {
        Some("the end of its drain has no timer")
    } else if worker
        .row
        .cordon_end()
        .is_some_and(|at| !scheduler.timers.has_wall(at, WallTimer::CordonEnd(id)))
    {
        Some("the end of its cordon has no timer")
    } else {
        None
    }
}

/// A drain deadline has its timer. After the deadline, all attempts of the worker are being stopped.
fn drain_ends(scheduler: &Scheduler, id: WorkerId, worker: &Worker) -> bool {
    let attempt = |job| scheduler.jobs.get(job).and_then(Job::attempt);
    let deadline = worker.row.drain.and_then(|drain| drain.deadline);
    deadline.is_none_or(|at| {
        scheduler.timers.has_wall(at, WallTimer::DrainEnd(id))
            || worker
                .holdings
                .jobs
                .iter()
                .all(|job| attempt(job).is_some_and(|attempt| attempt.stopping.is_some()))
    })
}
