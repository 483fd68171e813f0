//! A reading of jobs.yaml, and the one of its keys that reaches what runs already: how often a worker says that it lives
//! (`ping_interval`).
//!
//! A worker is asked for the shortest interval that any definition of its attempts wants, and never for a longer one than the server asks
//! of all. When it has none of them any more it may go on as it was: nobody counts for that, until the next reading or session.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Configure, Intervals};
use protocol::{Order, WorkerId};

use crate::definition::Definition;
use crate::scheduler::Scheduler;

pub(crate) fn define(it: &mut Scheduler, definitions: Vec<Arc<Definition>>) {
    it.definitions.replace(definitions);
    it.changed = true;
    let workers: Vec<WorkerId> = it.fleet.iter().map(|(id, _)| id).collect();
    for id in workers {
        keep_pace(it, id);
    }
}

/// Asks a worker to be heard of as often as what it has wants it.
pub(crate) fn keep_pace(it: &mut Scheduler, id: WorkerId) {
    let wanted = wanted_of(it, id);
    if it.fleet.worker(id).is_some_and(|worker| worker.heartbeat != wanted) {
        ask(it, id, wanted);
    }
}

/// A worker is given an attempt that wants it to be heard of this often.
pub(crate) fn quicken(it: &mut Scheduler, id: WorkerId, wanted: Option<Duration>) {
    let Some(wanted) = wanted else { return };
    let ordinary = it.config.intervals.heartbeat;
    if it.fleet.worker(id).is_some_and(|worker| wanted < worker.heartbeat.unwrap_or(ordinary)) {
        ask(it, id, Some(wanted));
    }
}

/// The shortest interval that anything wants that this worker has, if it is shorter than that of all.
pub(crate) fn wanted_of(it: &Scheduler, id: WorkerId) -> Option<Duration> {
    let held = it.fleet.worker(id)?.held.iter().filter_map(|job| it.jobs.get(job));
    let wanted = held.filter_map(|job| it.definitions.ping(job.definition)).min();
    wanted.filter(|wanted| *wanted < it.config.intervals.heartbeat)
}

fn ask(it: &mut Scheduler, id: WorkerId, wanted: Option<Duration>) {
    let Some(session) = it.ready_session(id) else { return };
    let ordinary = it.config.intervals;
    let Some(worker) = it.fleet.worker_mut(id) else { return };
    worker.heartbeat = wanted;
    let intervals = Intervals { heartbeat: wanted.unwrap_or(ordinary.heartbeat), ..ordinary };
    let settings = Configure { intervals: Some(intervals), ..worker.settings() };
    it.send(session, Order::Configure(settings));
}
