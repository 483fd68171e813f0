//! Assigns a job to the worker that was chosen for it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::{AttemptNo, Fence, JobId, Nonce, Now, Token, WorkerId};
use rand::Rng;

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::handlers::{define, first_report};
use crate::job::{Attempt, LiveState, Presence, Progress, StartState};
use crate::limits::gate;
use crate::queue::LaneKey;
use crate::reservation::Reserved;
use crate::step::{Assigned, Change};

/// Assigns the first job of a lane to a worker; `free` if a slot is free there, else the attempt is prefetched.
pub(super) fn grant(scheduler: &mut Scheduler, now: Now, lane: LaneKey, id: JobId, to: WorkerId, free: bool) {
    scheduler.counters.fence = Fence(scheduler.counters.fence.0 + 1);
    let fence = scheduler.counters.fence;
    let ageing = scheduler.config.priority_ageing;
    let nonce = Nonce(scheduler.rng.next_u64());
    let session = scheduler.ready_session(to);
    let Some(definition) = scheduler.definitions.at(lane.definition()).cloned() else { return };
    let gpus = free_gpus(scheduler, &definition, to);
    let Some(job) = scheduler.jobs.get_mut(&id) else { return };
    let key = job.queue_key(ageing, id);
    scheduler.ready.start(lane, key, now.utc);
    let number = AttemptNo(job.extras.as_ref().map_or(0, |extras| extras.attempts.0) + 1);
    let asks_first = definition.container.ask_before_start;
    job.live_state = LiveState::Held(Box::new(Attempt {
        fence,
        nonce,
        number,
        worker: to,
        assigned_at: now.utc,
        assigned_up: now.up,
        session,
        progress: if free { Progress::Slot } else { Progress::Backlog },
        start: if asks_first { StartState::MustAsk } else { StartState::MayStart },
        presence: Presence::NotAwaited,
        recalled: false,
        stopping: None,
        cancelled_by: None,
        loss_at: None,
        noted_unreachable: false,
        gpus: gpus.clone().into(),
    }));
    let member = scheduler.batches.member(job.role().numbered_as(id));
    let grant = first_report::grant_of(ageing, job, Token { job: id, fence, nonce }, &definition, member);
    let number_of_definition = job.definition;
    let key = job.queue_key(ageing, id);
    let reserved = Reserved::of(&definition.container.resources, gpus);
    scheduler.fleet.hold(to, grant.token, reserved);
    if let Some(parent) = scheduler.parent_of(id) {
        scheduler.parents.hold_worker(parent, id, to);
    }
    if !free {
        scheduler.fleet.enter_backlog(to, key);
    }
    gate::take_permits(scheduler, lane, id, now);
    let Some(session) = session else {
        return;
    };
    scheduler.change(Change::Assigned(Assigned {
        token: grant.token,
        number,
        worker: to,
        session,
        at: now.utc,
        gpus: grant.gpus.clone(),
    }));
    define::send_definition(scheduler, to, session, number_of_definition);
    scheduler.grant(session, grant);
    first_report::arm(scheduler, now, id);
}

/// GPUs for a job of this definition: the first that nobody holds.
fn free_gpus(scheduler: &Scheduler, definition: &Definition, worker: WorkerId) -> Vec<String> {
    let count = definition.container.resources.gpus as usize;
    let Some(worker) = scheduler.fleet.worker(worker) else { return Vec::new() };
    worker.holdings.in_use().free_gpus(&worker.capacity.offer).take(count).cloned().collect()
}
