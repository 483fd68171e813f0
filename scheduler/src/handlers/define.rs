//! Applies a new version of jobs.yaml, and adapts the heartbeat interval of workers (`ping_interval`).
//!
//! A worker is asked for the shortest interval of all definitions that it holds, and never for a longer one
//! than the server's. After its last such attempt it may keep the shorter interval until the next load or
//! session, which saves a count.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::{Configure, Intervals};
use protocol::{Now, Order, SessionId, WorkerId};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::handlers::{expect, pause, reload, reschedule};
use crate::ids::DefinitionNo;
use crate::limits::gate;
use crate::step::Effect;

pub(crate) fn define(scheduler: &mut Scheduler, now: Now, definitions: Vec<Arc<Definition>>) {
    let current = definitions.clone();
    scheduler.definitions.replace(definitions);
    pause::apply(scheduler);
    reload::apply(scheduler, now);
    let changed = scheduler.limits.define(now.up, current.iter().map(Arc::as_ref));
    changed.into_iter().for_each(|limit| gate::recheck_limit(scheduler, limit, now));
    scheduler.hook_targets.define(&current);
    reschedule::reschedule(scheduler, now, &current);
    // At a start their rules are known only now.
    pause::end_due(scheduler, now);
    expect::redefine(scheduler, now, &current);
    scheduler.changed = true;
    let workers: Vec<WorkerId> = scheduler.fleet.iter().map(|(id, _)| id).collect();
    for id in workers {
        update_heartbeat(scheduler, id);
    }
}

/// Sends a definition to a worker, once per session.
pub(crate) fn send_definition(
    scheduler: &mut Scheduler,
    id: WorkerId,
    session: SessionId,
    number: DefinitionNo,
) {
    if let Some(definition) = scheduler.definitions.at(number).cloned() {
        // Numbers are reused, revisions are not.
        let revision = definition.revision;
        let to = scheduler.fleet.worker_mut(id).and_then(|worker| worker.link.state_mut());
        if to.is_some_and(|session| session.sent_definitions.insert(revision)) {
            scheduler.effect(Effect::Define(session, definition));
        }
    }
    shorten_heartbeat(scheduler, id, scheduler.definitions.heartbeat(number));
}

/// Asks a worker for the heartbeat interval that its attempts need.
pub(crate) fn update_heartbeat(scheduler: &mut Scheduler, id: WorkerId) {
    let wanted = wanted_heartbeat(scheduler, id);
    if scheduler.fleet.worker(id).is_some_and(|worker| worker.link.heartbeat() != wanted) {
        send_heartbeat_interval(scheduler, id, wanted);
    }
}

/// Shortens a worker's heartbeat interval for a new attempt.
fn shorten_heartbeat(scheduler: &mut Scheduler, id: WorkerId, wanted: Option<Duration>) {
    let Some(wanted) = wanted else { return };
    let ordinary = scheduler.config.intervals.heartbeat;
    if scheduler.fleet.worker(id).is_some_and(|worker| wanted < worker.link.heartbeat().unwrap_or(ordinary)) {
        send_heartbeat_interval(scheduler, id, Some(wanted));
    }
}

/// The shortest interval that an attempt of this worker needs, if it is shorter than the server's.
pub(crate) fn wanted_heartbeat(scheduler: &Scheduler, id: WorkerId) -> Option<Duration> {
    let held = scheduler.fleet.worker(id)?.holdings.jobs.iter().filter_map(|job| scheduler.jobs.get(job));
    let wanted = held.filter_map(|job| scheduler.definitions.heartbeat(job.definition)).min();
    wanted.filter(|wanted| *wanted < scheduler.config.intervals.heartbeat)
}

fn send_heartbeat_interval(scheduler: &mut Scheduler, id: WorkerId, wanted: Option<Duration>) {
    let Some(session) = scheduler.ready_session(id) else { return };
    let ordinary = scheduler.config.intervals;
    let Some(worker) = scheduler.fleet.worker_mut(id) else { return };
    if let Some(session) = worker.link.state_mut() {
        session.heartbeat = wanted;
    }
    let intervals = Intervals { heartbeat: wanted.unwrap_or(ordinary.heartbeat), ..ordinary };
    let settings = Configure { intervals: Some(intervals), ..worker.settings() };
    scheduler.send(session, Order::Configure(settings));
}
