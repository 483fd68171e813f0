//! A worker is to finish what it has and leave. The order survives restarts of the server and reconnects of the worker, and ends with the
//! process that has left with nothing: what starts in its place finds a cordon, which only a person lifts.
//!
//! ```text
//! drain ──▶ cordoned, Configure ──▶ deadline: what still runs is stopped, interrupted, not counted
//!               │                        │
//!               ▼                        ▼
//!           held is empty, the process is gone: drained ──▶ the next process: cordoned, no order
//! ```

use core::time::Duration;

use alloc::vec::Vec;

use protocol::order::StopCause;
use protocol::{Fence, Incarnation, JobId, Now, WorkerId};

use crate::fleet::Link;
use crate::job::Job;
use crate::on::cancel;
use crate::scheduler::Scheduler;
use crate::step::Drain;
use crate::timers::Date;

/// Takes the order in; a later one replaces an earlier one.
pub(crate) fn begin(it: &mut Scheduler, now: Now, id: WorkerId, patience: Option<Duration>) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    // Silent for longer than its lease: whatever process comes is another one than the one that was meant.
    let process = match worker.link {
        Link::Away if !worker.unreachable => None,
        Link::Away | Link::Joining(_) | Link::Ready(_) => {
            Some(worker.row.process.map_or(Incarnation(0), |process| process.incarnation))
        }
    };
    let drain = Drain { process, deadline: patience.map(|patience| now.utc + patience) };
    worker.row.cordoned = true;
    set(it, id, Some(drain));
}

/// Takes the order back.
pub(crate) fn end(it: &mut Scheduler, id: WorkerId) {
    set(it, id, None);
}

/// A process of this worker says Hello. If the one that was to leave has left with nothing, this one is to stay.
pub(crate) fn greet(it: &mut Scheduler, id: WorkerId, incarnation: Incarnation) {
    let Some(worker) = it.fleet.worker(id) else { return };
    let Some(drain) = worker.row.drain.filter(|drain| drain.process != Some(incarnation)) else { return };
    let has_left = drain.process.is_some() && worker.held.is_empty();
    set(it, id, (!has_left).then_some(Drain { process: Some(incarnation), ..drain }));
}

/// Time is up: what the worker still has is stopped.
pub(crate) fn due(it: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = it.fleet.worker(id) else { return };
    if worker.row.drain.and_then(|drain| drain.deadline).is_none_or(|at| at > now.utc) {
        return;
    }
    let held: Vec<JobId> = worker.held.iter().copied().collect();
    let fences: Vec<(JobId, Fence)> = held
        .into_iter()
        .filter_map(|job| Some((job, it.jobs.get(&job).and_then(Job::attempt)?.fence)))
        .collect();
    for (job, fence) in fences {
        cancel::stop(it, now, job, fence, StopCause::Drain, "the end of its worker's drain".into());
    }
}

/// Keeps the timer in step with the order.
fn set(it: &mut Scheduler, id: WorkerId, drain: Option<Drain>) {
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    let before = core::mem::replace(&mut worker.row.drain, drain);
    if let Some(at) = before.and_then(|drain| drain.deadline) {
        it.timers.clear_date(at, Date::DrainEnd(id));
    }
    if let Some(at) = drain.and_then(|drain| drain.deadline) {
        it.timers.set_date(at, Date::DrainEnd(id));
    }
}
