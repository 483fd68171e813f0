//! Waiting jobs × room on workers → attempts. The way back is in `recall`.
//!
//! ```text
//! next job in order ──▶ a lane nobody can take now is parked, the next lane has its turn
//!        │
//!        ▼
//! workers with room, least loaded first: free slots before backlogs; ties are drawn
//!        │
//!        ▼
//! grant: fence + nonce, the job is assigned, the worker holds it
//! ```
//!
//! A backlog is filled ahead only when no slot is free anywhere, so that its worker never waits for the network between two jobs.

use alloc::boxed::Box;

use protocol::{AttemptNo, Fence, JobId, Nonce, Now, Token, WorkerId};
use rand::Rng;

use crate::definition::{Definition, RetryOn};
use crate::explain;
use crate::fleet::Worker;
use crate::job::{Attempt, Job, Standing, State, Stay};
use crate::ready::LaneKey;
use crate::scheduler::{Scheduler, timeout_of};
use crate::step::{Assigned, Change, Grant, PendingReason};

/// Hands out attempts until nobody waits or nobody has room.
pub(crate) fn fill_slots(it: &mut Scheduler, now: Now) {
    if it.fleet.take_growth() {
        it.ready.unpark();
    }
    while it.fleet.has_room() {
        let Some((lane, job)) = it.ready.first() else {
            return;
        };
        match choose(it, lane, job) {
            Some((worker, free)) => grant(it, now, lane, job, worker, free),
            None => it.ready.park(lane),
        }
    }
}

/// The lane in which a job waits: its worker's own if it may only run where it ran last. Where the platform failed it nobody waits for.
pub(crate) fn lane_of(it: &Scheduler, job: &Job) -> LaneKey {
    let pinned = it
        .definitions
        .at(job.definition)
        .filter(|definition| definition.retry.on == RetryOn::Same)
        .and_then(|_| job.last_stay())
        .filter(|last| !last.failed_by_platform)
        .map(|last| last.worker)
        .filter(|worker| it.fleet.worker(*worker).is_some());
    match pinned {
        Some(only) => LaneKey::Pinned(only, job.definition),
        None => LaneKey::Definition(job.definition),
    }
}

/// Where a job stands and, if it waits, why: for the answer to its submission.
pub(crate) fn standing_of(it: &Scheduler, id: JobId) -> (State, Option<PendingReason>) {
    let Some(job) = it.jobs.get(&id) else {
        return (State::Queued, None);
    };
    let pending = match &job.standing {
        Standing::Scheduled => Some(PendingReason::NotDue),
        Standing::Queued(lane) => {
            it.definitions.at(job.definition).map(|it_is| explain::why_waiting(it, it_is, lane.pinned_to()))
        }
        Standing::Quarantined => Some(PendingReason::Quarantined),
        Standing::Held(_) => None,
    };
    (job.state(), pending)
}

/// The least loaded worker that may take this job, and whether it has a free slot. After a failure that asks for another worker,
/// one that is not the last; the last if there is no other.
fn choose(it: &Scheduler, lane: LaneKey, id: JobId) -> Option<(WorkerId, bool)> {
    let job = it.jobs.get(&id)?;
    let definition = it.definitions.at(job.definition)?;
    let mut last_resort = None;
    for (worker, free) in it.fleet.open() {
        let worker_id = worker.row.worker;
        if !may_run(worker, lane, definition) {
            continue;
        }
        if avoids(job, definition, worker_id) {
            last_resort = last_resort.or(Some((worker_id, free)));
            continue;
        }
        return Some((worker_id, free));
    }
    last_resort
}

/// Whether a worker with room may have it: of all [obstacles](explain::obstacles) only these are left.
pub(crate) fn may_run(worker: &Worker, lane: LaneKey, definition: &Definition) -> bool {
    let is_allowed = lane.pinned_to().is_none_or(|only| only == worker.row.worker);
    is_allowed && worker.offers(definition.runtime()) && !worker.exclusions.cover(definition)
}

/// Whether the next attempt should not go to this worker, where the last one was: the user says so, or the platform failed there.
pub(crate) fn avoids(job: &Job, definition: &Definition, worker: WorkerId) -> bool {
    let avoids_last = |last: &Stay| last.failed_by_platform || definition.retry.on == RetryOn::Other;
    job.last_stay().filter(avoids_last).is_some_and(|last| last.worker == worker)
}

fn grant(it: &mut Scheduler, now: Now, lane: LaneKey, id: JobId, to: WorkerId, free: bool) {
    it.last.fence = Fence(it.last.fence.0 + 1);
    let fence = it.last.fence;
    let nonce = Nonce(it.rng.next_u64());
    let session = it.ready_session(to);
    let Some(job) = it.jobs.get_mut(&id) else {
        return;
    };
    let place = job.place(id);
    it.ready.remove(lane, place);
    let number = AttemptNo(job.past.as_ref().map_or(0, |past| past.attempts.0) + 1);
    let asks_first = it.definitions.at(job.definition).is_some_and(|it| it.container.ask_before_start);
    job.standing = Standing::Held(Box::new(Attempt {
        fence,
        nonce,
        number,
        worker: to,
        assigned_at: now.utc,
        assigned_up: now.up,
        started_at: None,
        stopping: None,
        session,
        recalled: false,
        prefetched: !free,
        may_run: !asks_first,
        unsettled: false,
        begun: false,
        overrun_at: None,
        loss_at: None,
    }));
    let Some(definition) = it.definitions.at(job.definition).cloned() else {
        return;
    };
    let grant = grant_of(job, Token { job: id, fence, nonce }, &definition);
    let number_of_definition = job.definition;
    let place = job.place(id);
    it.fleet.hold(to, id);
    if !free {
        it.fleet.prefetch(to, place);
    }
    let Some(session) = session else {
        return;
    };
    it.change(Change::Assigned(Assigned { token: grant.token, number, worker: to, session, at: now.utc }));
    it.tell(to, session, number_of_definition);
    it.grant(session, grant);
}

/// What its worker is told of an attempt: the same each time, as long as it is the current one.
pub(crate) fn grant_of(job: &Job, token: Token, definition: &Definition) -> Grant {
    Grant {
        token,
        priority: job.priority,
        due_at: job.due_at,
        revision: definition.revision,
        has_body: job.has_body,
        time_left: timeout_of(job, definition),
        memory_bytes: job.past.as_ref().and_then(|past| definition.raised_memory(past.oom_kills)),
    }
}
