//! Places waiting jobs on workers with free capacity. `recall` takes prefetched attempts back.
//!
//! ```text
//! first job in order ──▶ if no worker can take it, its lane is parked and the next lane follows
//!        │
//!        ▼
//! choice: classes that meet its need; in each the workers with room, free slots before backlogs; ties are random
//!        │
//!        ▼
//! grant: fence and nonce, the job is assigned, the worker holds it
//! ```
//!
//! Backlogs are filled only when no slot is free anywhere. They keep a worker busy while it waits for the
//! network between two jobs.

pub(crate) mod choice;
pub mod exclusion;
mod grant;
pub(crate) mod recall;
pub(crate) mod reload;
pub mod rules;

use alloc::vec::Vec;

use protocol::{JobId, Now, WorkerId};

pub(crate) use grant::grant_of;

use crate::core::Scheduler;
use crate::definition::{Definition, RetryOn};
use crate::explain;
use crate::fleet::Worker;
use crate::handlers::{batch, run_on};
use crate::ids::NeedId;
use crate::job::{Job, LastPlacement, LiveState};
use crate::limits::gate::{self, Next};
use crate::limits::keys::KeySetNo;
use crate::placement::choice::Choice;
use crate::queue::{LaneKey, ParkedFor};
use crate::run_on::SetRole;
use crate::state::State;
use crate::step::PendingReason;

/// Assignments of one step. The rest follows in the next step, so that no commit holds the room of a whole fleet, or the last slice of a
/// large batch.
const ASSIGNMENTS_PER_STEP: usize = 500;

/// Assigns jobs until no job waits, no worker has room, or the limit of a step is reached.
pub(crate) fn fill_slots(scheduler: &mut Scheduler, now: Now) {
    for id in scheduler.fleet.take_grown() {
        let Some(worker) = scheduler.fleet.worker(id) else { continue };
        if let Some(class) = worker.class() {
            for need in scheduler.fleet.classes().needs_met(class, id, &worker.row.name) {
                scheduler.ready.unpark(ParkedFor::Need(need));
            }
        }
        scheduler.ready.unpark(ParkedFor::Worker(id));
    }
    for id in scheduler.fleet.take_freed() {
        let Some(worker) = scheduler.fleet.worker(id) else { continue };
        if let Some(class) = worker.class() {
            let classes = scheduler.fleet.classes();
            let has_room =
                |need: &NeedId| classes.reservation_of(*need).is_none_or(|it| worker.has_room_for(it));
            for need in classes.needs_met(class, id, &worker.row.name).filter(has_room) {
                scheduler.ready.stir_slots(ParkedFor::Need(need));
            }
        }
        scheduler.ready.stir_slots(ParkedFor::Worker(id));
    }
    gate::fire_rates(scheduler, now);
    scheduler.has_more_to_place = false;
    let mut budget = Budget { assignments: ASSIGNMENTS_PER_STEP, looks: PARKED_PER_STEP };
    while place_all(scheduler, now, &mut budget) {}
}

/// The work that a step may still do.
struct Budget {
    assignments: usize,
    /// Lanes that are looked at in vain.
    looks: usize,
}

/// Assigns jobs until no lane can go on. Returns true if lanes that were held back from backlogs have to be looked at again: a job was
/// assigned after them, so the lane that held them back may wait for something else now.
fn place_all(scheduler: &mut Scheduler, now: Now, budget: &mut Budget) -> bool {
    // Lanes that may not be prefetched now, and must not hold up others that find a free slot.
    let mut held_back = Vec::new();
    let mut is_outdated = false;
    while let Next::Lane { lane, job, free_only } = gate::next(scheduler, now, &mut budget.looks) {
        if budget.assignments == 0 || budget.looks == 0 {
            scheduler.has_more_to_place = true;
            break;
        }
        // One that its batch has not come to yet.
        if batch::cancel_if_stopped(scheduler, now, job) {
            budget.assignments -= 1;
            is_outdated = !held_back.is_empty();
            continue;
        }
        if let Some(limit) = gate::blocking(scheduler, lane, now) {
            budget.looks -= 1;
            gate::park_under(scheduler, lane, limit, now);
            continue;
        }
        match choice::choose(scheduler, lane, job, free_only) {
            Choice::Worker(worker, free) if free || !is_held_back(scheduler, now, lane) => {
                grant::grant(scheduler, now, lane, job, worker, free);
                budget.assignments -= 1;
                is_outdated = !held_back.is_empty();
                continue;
            }
            Choice::Worker(..) => {
                held_back.push(lane);
                scheduler.ready.park(lane, parked_for(scheduler, lane));
            }
            Choice::NoFreeSlot => gate::park_for_workers(scheduler, lane, true),
            Choice::Nobody => gate::park_for_workers(scheduler, lane, false),
        }
        budget.looks -= 1;
    }
    for lane in held_back {
        scheduler.ready.put_back(lane);
    }
    is_outdated && !scheduler.has_more_to_place
}

/// Lanes that one step parks at most.
const PARKED_PER_STEP: usize = 10_000;

fn is_held_back(scheduler: &mut Scheduler, now: Now, lane: LaneKey) -> bool {
    let head = scheduler.ready.head(lane);
    head.is_some_and(|head| gate::is_held_back(scheduler, now, head))
}

/// The workers that may run the jobs of a lane.
pub(crate) fn parked_for(scheduler: &Scheduler, lane: LaneKey) -> ParkedFor {
    let need = scheduler.fleet.classes().need_of(lane.definition()).map(|(need, _)| need);
    // Every definition has a need.
    lane.pinned_to().map_or(ParkedFor::Need(need.unwrap_or(NeedId(u32::MAX))), ParkedFor::Worker)
}

/// The lane of a job: pinned to its last worker if the retry policy says `same`. After an infrastructure
/// failure no job is pinned, nor to a worker that was revoked or that its definition does not list any more.
pub(crate) fn lane_of(scheduler: &Scheduler, job: &Job) -> LaneKey {
    let need = scheduler.fleet.classes().need_of(job.definition).map(|(_, need)| need);
    let may_wait_for = |worker: &Worker| {
        worker.row.revoked_at.is_none()
            && need.is_none_or(|need| need.lists(worker.row.worker, &worker.row.name))
    };
    let pinned = scheduler
        .definitions
        .at(job.definition)
        .filter(|definition| definition.retry.on == RetryOn::Same)
        .and_then(|_| job.last_placement())
        .filter(|last| !last.infrastructure_failure)
        .map(|last| last.worker)
        .filter(|worker| scheduler.fleet.worker(*worker).is_some_and(may_wait_for));
    // A member of `run_on: all` waits for its worker, whatever becomes of it.
    let pinned = run_on::pinned_to(job).or(pinned);
    let distinct = run_on::distinct_lane(scheduler, job).filter(|_| pinned.is_none());
    if let Some(lane) = distinct {
        return lane;
    }
    match pinned {
        Some(only) => LaneKey::Pinned(only, job.definition, key_set_of(scheduler, job)),
        None if need.is_some_and(|need| !need.workers.is_empty()) => {
            LaneKey::Listed(job.definition, key_set_of(scheduler, job))
        }
        None => LaneKey::Definition(job.definition, key_set_of(scheduler, job)),
    }
}

/// The keys of a job.
pub(crate) fn key_set_of(scheduler: &Scheduler, job: &Job) -> KeySetNo {
    if job.role() == SetRole::Parent {
        return KeySetNo::UNLIMITED;
    }
    let own = job.history.as_ref().map(|history| history.key_set).filter(|key_set| key_set.is_keyed());
    own.unwrap_or_else(|| {
        let definition = scheduler.definitions.at(job.definition);
        let is_limited = definition.is_some_and(|definition| definition.takes_free_slots_only());
        if is_limited { KeySetNo::UNKEYED } else { KeySetNo::UNLIMITED }
    })
}

/// The state of a job and its pending reason. `by_workers` answers why the workers do not take the jobs of a lane.
pub(crate) fn state_and_reason(
    scheduler: &Scheduler,
    id: JobId,
    by_workers: fn(&Scheduler, LaneKey) -> PendingReason,
) -> (State, Option<PendingReason>) {
    let Some(job) = scheduler.jobs.get(&id) else {
        return (State::Queued, None);
    };
    let pending = match &job.live_state {
        LiveState::Scheduled if scheduler.dependencies.holds_back(id) => Some(PendingReason::Dependencies),
        LiveState::Scheduled if scheduler.unique.holds_back(id) => Some(PendingReason::Replacing),
        LiveState::Scheduled => Some(PendingReason::NotDue),
        LiveState::Queued(lane) => Some(explain::why_queued(scheduler, *lane, by_workers(scheduler, *lane))),
        LiveState::Quarantined => Some(PendingReason::Quarantined),
        LiveState::Parent { has_started: false } => Some(PendingReason::Members),
        LiveState::Held(_) | LiveState::Parent { has_started: true } => None,
    };
    (job.state(), pending)
}

/// A worker may take jobs of this lane when it has room. Only these of all [obstacles](crate::explain::obstacles)
/// are left to check then.
pub(crate) fn may_run(scheduler: &Scheduler, lane: LaneKey, worker: &Worker) -> bool {
    let id = worker.row.worker;
    let Some(definition) = scheduler.definitions.at(lane.definition()) else { return false };
    let classes = scheduler.fleet.classes();
    let meets = classes.need_of(lane.definition()).is_some_and(|(need_id, need)| {
        worker.class().is_some_and(|class| classes.score(need_id, class).is_some())
            && need.lists(id, &worker.row.name)
    });
    meets
        && lane.pinned_to().is_none_or(|only| only == id)
        && lane.distinct_of().is_none_or(|of| run_on::lets(scheduler, of, id))
        && !worker.health.exclusions.covers_definition(definition)
}

/// The next attempt should not run on this worker, because the last one ran there and the retry policy or an
/// infrastructure failure forbids it.
pub(crate) fn avoids(job: &Job, definition: &Definition, worker: WorkerId) -> bool {
    let avoids_last =
        |last: &LastPlacement| last.infrastructure_failure || definition.retry.on == RetryOn::Other;
    job.last_placement().filter(avoids_last).is_some_and(|last| last.worker == worker)
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;

    use protocol::container::ContainerSpec;
    use protocol::order::VersionRange;
    use protocol::report::{Availability, Inventory};
    use protocol::{Incarnation, Now, Report, Revision, RuntimeKind, SessionId, Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::{Expect, LossPolicy, RetryPolicy, WaitLimits};
    use crate::ids::Ticket;
    use crate::input::{Connected, Input, Submit};
    use crate::new_jobs::NewJob;
    use crate::step::Change;

    #[test]
    fn one_step_assigns_a_limited_number_and_the_next_one_is_due_at_once() {
        let now = Now { utc: Timestamp(0), up: Uptime(1) };
        let mut scheduler =
            Scheduler::new(Config { slice: 5_000, ..Config::for_tests() }, Counters::default());
        let runtimes = vec![(RuntimeKind::Docker, Availability::Available)];
        let hello = Connected {
            session: SessionId(1),
            name: "w1".into(),
            secret_hash: [1; 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: 1,
            versions: VersionRange { lowest: 1, highest: 1 },
            engine: None,
            version: "0.1.0".into(),
            slots: 10_000,
            backlog: 0,
            labels: Vec::new(),
            resources: Default::default(),
            runtimes: runtimes.clone(),
            address: "here".into(),
            join: Default::default(),
        };
        let inventory = Inventory { runtimes, attempts: Vec::new(), foreign: Vec::new(), last: true };
        let definition = Definition {
            name: "job".into(),
            revision: Revision(1),
            enabled: true,
            priority: 0,
            timeout: None,
            retry: RetryPolicy::default(),
            loss: LossPolicy::default(),
            waits: WaitLimits::default(),
            expect: Expect::default(),
            placement: rules::PlacementRules::default(),
            timetable: crate::schedule::Timetable::default(),
            hooks: Default::default(),
            secrets: Default::default(),
            submission: Default::default(),
            limits: Default::default(),
            container: ContainerSpec::default(),
        };
        scheduler.step(now, Input::Define(vec![Arc::new(definition)]));
        scheduler.step(now, Input::Connected(hello));
        scheduler.step(now, Input::Reported(SessionId(1), Report::Inventory(inventory)));
        let jobs = vec![NewJob { revision: Revision(1), ..NewJob::default() }; 1_200];
        let submit = Submit {
            ticket: Ticket(1),
            jobs: jobs.into(),
            batch: Some(Default::default()),
            require_worker: false,
            key: None,
        };
        let assigned = |step: &crate::step::Step| {
            step.changes.iter().filter(|change| matches!(change, Change::Assigned(_))).count()
        };
        let first = scheduler.step(now, Input::Submit(submit));
        assert_eq!(assigned(&first), ASSIGNMENTS_PER_STEP);
        for rest in [500, 200] {
            assert_eq!(scheduler.wake_at().up, Some(Uptime(0)));
            assert_eq!(assigned(&scheduler.step(now, Input::Tick)), rest);
        }
        assert_ne!(scheduler.wake_at().up, Some(Uptime(0)));
    }
}
