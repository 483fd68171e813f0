//! Waiting jobs × room on workers → attempts. And back: what sits in one worker's backlog while another has a free slot.
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
//! When a slot becomes free elsewhere, what has sat for [`SITTING_MIN`] is asked back, the last in order first.

use core::time::Duration;

use alloc::boxed::Box;
use alloc::vec::Vec;

use protocol::{AttemptNo, Fence, JobId, Nonce, Now, Order, Token, Uptime, WorkerId};
use rand::Rng;

use crate::definition::{Definition, RetryOn};
use crate::explain;
use crate::fleet::{Link, Worker};
use crate::job::{Attempt, Job, Standing, State};
use crate::ready::LaneKey;
use crate::scheduler::{Scheduler, timeout_of};
use crate::step::{Assigned, Change, Grant, PendingReason};
use crate::timers::Alarm;

/// What has been in a backlog for less than this is not asked back: it may be on its way into a slot (DESIGN.md section 8).
const SITTING_MIN: Duration = Duration::from_millis(200);

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

/// The lane in which a job of this kind waits: its worker's own if it may only run where it ran last.
pub(crate) fn lane_of(it: &Scheduler, job: &Job) -> LaneKey {
    let pinned = it
        .definitions
        .at(job.definition)
        .filter(|definition| definition.retry.on == RetryOn::Same)
        .and_then(|_| job.last_worker())
        .filter(|worker| it.fleet.worker(*worker).is_some());
    match pinned {
        Some(only) => LaneKey::Pinned(only, job.definition),
        None => LaneKey::Definition(job.definition),
    }
}

/// Asks back what sits in backlogs while slots are free elsewhere and nobody else waits.
pub(crate) fn recall_idle(it: &mut Scheduler, now: Now) {
    if !it.fleet.has_prefetched() || it.ready.first().is_some() {
        return;
    }
    let free: u32 = it
        .fleet
        .open()
        .take_while(|(_, free)| *free)
        .map(|(worker, _)| worker.slots().saturating_sub(worker.held_count()))
        .sum();
    if free == 0 {
        return;
    }
    let mut wanted = free as usize;
    let mut soonest: Option<Uptime> = None;
    let mut recalls = Vec::new();
    for (id, worker) in it.fleet.iter().filter(|(_, worker)| worker.queued() > 0) {
        let Link::Ready(session) = worker.link else {
            continue;
        };
        let mut tokens = Vec::new();
        for place in worker.prefetched.iter().rev().take(worker.queued() as usize) {
            let Some(attempt) = it.jobs.get(&place.job()).and_then(Job::attempt) else {
                continue;
            };
            let ripe = attempt.assigned_up + SITTING_MIN;
            let takers = || {
                it.fleet
                    .open()
                    .any(|(other, free)| free && other.row.worker != id && suits(it, other, place.job()))
            };
            // One that its worker could not tell about may not be there: asked for, it would be "unknown" after it was sent again.
            let is_fixed = attempt.recalled || attempt.unsettled || attempt.stopping.is_some();
            if is_fixed || wanted == tokens.len() || !takers() {
                continue;
            }
            if ripe <= now.up {
                tokens.push(attempt.token(place.job()));
            } else {
                soonest = Some(soonest.map_or(ripe, |soonest| soonest.min(ripe)));
            }
        }
        wanted -= tokens.len();
        recalls.push((session, tokens));
    }
    for (session, tokens) in recalls.into_iter().filter(|(_, tokens)| !tokens.is_empty()) {
        for token in &tokens {
            if let Some(attempt) = it.jobs.get_mut(&token.job).and_then(Job::attempt_mut) {
                attempt.recalled = true;
            }
        }
        it.send(session, Order::Recall(tokens));
    }
    if let Some(soonest) = soonest {
        it.timers.set_alarm(soonest, Alarm::Recall);
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
fn may_run(worker: &Worker, lane: LaneKey, definition: &Definition) -> bool {
    let is_allowed = lane.pinned_to().is_none_or(|only| only == worker.row.worker);
    is_allowed && worker.offers(definition.runtime()) && !worker.exclusions.cover(definition)
}

fn suits(it: &Scheduler, worker: &Worker, id: JobId) -> bool {
    let Some(job) = it.jobs.get(&id) else {
        return false;
    };
    it.definitions.at(job.definition).is_some_and(|definition| may_run(worker, lane_of(it, job), definition))
}

/// Whether the next attempt should not go to this worker, where the last one was: the user says so, or the platform failed there.
pub(crate) fn avoids(job: &Job, definition: &Definition, worker: WorkerId) -> bool {
    let lost_there = job.past.as_ref().is_some_and(|past| !past.losses.is_empty());
    let avoids_last =
        definition.retry.on == RetryOn::Other || (lost_there && definition.retry.on == RetryOn::Any);
    avoids_last && job.last_worker() == Some(worker)
}

fn grant(it: &mut Scheduler, now: Now, lane: LaneKey, id: JobId, to: WorkerId, free: bool) {
    it.last.fence = Fence(it.last.fence.0 + 1);
    let fence = it.last.fence;
    let nonce = Nonce(it.rng.next_u64());
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
    let grant = Grant {
        token: Token { job: id, fence, nonce },
        priority: job.priority,
        due_at: job.due_at,
        revision: definition.revision,
        has_body: job.has_body,
        time_left: timeout_of(job, &definition),
    };
    let number_of_definition = job.definition;
    let place = job.place(id);
    it.fleet.hold(to, id);
    if !free {
        it.fleet.prefetch(to, place);
    }
    let Some(session) = it.ready_session(to) else {
        return;
    };
    it.change(Change::Assigned(Assigned { token: grant.token, number, worker: to, session, at: now.utc }));
    it.tell(to, session, number_of_definition);
    it.grant(session, grant);
}
