//! Drains a worker: it finishes its attempts and leaves. The drain survives restarts of the server and
//! reconnects of the worker. It ends when that process has left without attempts; the next process is
//! cordoned until a person uncordons it.
//!
//! ```text
//! drain ──▶ cordoned, Configure ──▶ deadline: running attempts are stopped, interrupted, not counted
//!               │                        │
//!               ▼                        ▼
//!           no attempts, process gone: drained ──▶ next process: cordoned, not draining
//! ```

use core::time::Duration;

use alloc::vec::Vec;

use protocol::order::StopCause;
use protocol::{Fence, Incarnation, JobId, Now, WorkerId};

use crate::core::Scheduler;
use crate::fleet::row::Drain;
use crate::handlers::cancel;
use crate::job::Job;
use crate::timers::WallTimer;

/// Begins a drain of a cordoned worker, or replaces the one in progress.
pub(crate) fn begin(scheduler: &mut Scheduler, now: Now, id: WorkerId, timeout: Option<Duration>) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    // The lease has expired, so the next process is another one than the drained one.
    let is_known = !worker.link.is_away() || worker.lease.is_expired;
    let process = is_known.then(|| worker.row.process.map_or(Incarnation(0), |process| process.incarnation));
    let drain = Drain { process, deadline: timeout.map(|timeout| now.utc + timeout) };
    set(scheduler, id, Some(drain));
}

/// Ends the drain.
pub(crate) fn end(scheduler: &mut Scheduler, id: WorkerId) {
    set(scheduler, id, None);
}

/// Updates the drain when a process of this worker says Hello. If the draining process has left without
/// attempts, the drain ends.
pub(crate) fn update_on_hello(scheduler: &mut Scheduler, id: WorkerId, incarnation: Incarnation) {
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    let Some(drain) = worker.row.drain.filter(|drain| drain.process != Some(incarnation)) else { return };
    let has_left = drain.process.is_some() && worker.holdings.jobs.is_empty();
    set(scheduler, id, (!has_left).then_some(Drain { process: Some(incarnation), ..drain }));
}

/// Stops the remaining attempts at the deadline.
pub(crate) fn stop_at_deadline(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker(id) else { return };
    if worker.row.drain.and_then(|drain| drain.deadline).is_none_or(|at| at > now.utc) {
        return;
    }
    let held: Vec<JobId> = worker.holdings.jobs.iter().copied().collect();
    let fences: Vec<(JobId, Fence)> = held
        .into_iter()
        .filter_map(|job| Some((job, scheduler.jobs.get(&job).and_then(Job::attempt)?.fence)))
        .collect();
    for (job, fence) in fences {
        cancel::stop(scheduler, now, job, fence, StopCause::Drain, "the end of its worker's drain".into());
    }
}

/// Stores the drain and moves its timer.
fn set(scheduler: &mut Scheduler, id: WorkerId, drain: Option<Drain>) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    let before = core::mem::replace(&mut worker.row.drain, drain);
    if let Some(at) = before.and_then(|drain| drain.deadline) {
        scheduler.timers.clear_wall(at, WallTimer::DrainEnd(id));
    }
    if let Some(at) = drain.and_then(|drain| drain.deadline) {
        scheduler.timers.set_wall(at, WallTimer::DrainEnd(id));
    }
}
