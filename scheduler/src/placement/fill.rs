//! Assigns waiting jobs to workers with room, a limited number in each step.

use alloc::vec::Vec;

use protocol::Now;

use super::choice::{self, Choice};
use super::{grant, parked_for};
use crate::core::Scheduler;
use crate::handlers::batch;
use crate::ids::NeedId;
use crate::limits::gate::{self, NextLane};
use crate::queue::{LaneKey, ParkedFor};

/// Assignments of one step. The rest follows in the next step, so that no commit holds the room of a whole fleet, or the last slice of a
/// large batch.
const ASSIGNMENTS_PER_STEP: usize = 500;

/// Assigns jobs until no job waits, no worker has room, or the limit of a step is reached.
pub(crate) fn fill_slots(scheduler: &mut Scheduler, now: Now) {
    for id in scheduler.fleet.take_newly_eligible() {
        let Some(worker) = scheduler.fleet.worker(id) else { continue };
        if let Some(class) = worker.class() {
            for need in scheduler.fleet.classes().needs_met(class, id, &worker.row.name) {
                scheduler.ready.unpark(ParkedFor::Need(need));
            }
        }
        scheduler.ready.unpark(ParkedFor::Worker(id));
    }
    for id in scheduler.fleet.take_newly_free() {
        let Some(worker) = scheduler.fleet.worker(id) else { continue };
        if let Some(class) = worker.class() {
            let classes = scheduler.fleet.classes();
            let has_room = |need: &NeedId| classes.reservation_of(*need).is_none_or(|it| worker.fits(it));
            for need in classes.needs_met(class, id, &worker.row.name).filter(has_room) {
                scheduler.ready.recheck_slots(ParkedFor::Need(need));
            }
        }
        scheduler.ready.recheck_slots(ParkedFor::Worker(id));
    }
    gate::fire_rates(scheduler, now);
    scheduler.has_more_to_place = false;
    let mut budget = StepQuota { assignments: ASSIGNMENTS_PER_STEP, lanes: PARKED_PER_STEP };
    while place_all(scheduler, now, &mut budget) {}
}

/// The work that a step may still do.
struct StepQuota {
    assignments: usize,
    /// Lanes that are looked at in vain.
    lanes: usize,
}

/// Assigns jobs until no lane can go on. Returns true if lanes that were held back from backlogs have to be looked at again: a job was
/// assigned after them, so the lane that held them back may wait for something else now.
fn place_all(scheduler: &mut Scheduler, now: Now, budget: &mut StepQuota) -> bool {
    // Lanes that may not be prefetched now, and must not hold up others that find a free slot.
    let mut held_back = Vec::new();
    let mut is_outdated = false;
    while let NextLane::Lane { lane, job, free_only } = gate::next_lane(scheduler, now, &mut budget.lanes) {
        if budget.assignments == 0 || budget.lanes == 0 {
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
            budget.lanes -= 1;
            gate::park_under(scheduler, lane, limit, now);
            continue;
        }
        match choice::choose(scheduler, lane, job, free_only) {
            Choice::Worker(worker, free) if free || !is_behind_limited(scheduler, now, lane) => {
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
        budget.lanes -= 1;
    }
    for lane in held_back {
        scheduler.ready.unpark_lane(lane);
    }
    is_outdated && !scheduler.has_more_to_place
}

/// Lanes that one step parks at most.
const PARKED_PER_STEP: usize = 10_000;

fn is_behind_limited(scheduler: &mut Scheduler, now: Now, lane: LaneKey) -> bool {
    let head = scheduler.ready.head(lane);
    head.is_some_and(|head| gate::is_behind_limited(scheduler, now, head))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use protocol::report::{Availability, Inventory};
    use protocol::version::VersionRange;
    use protocol::{Incarnation, Now, Report, Revision, RuntimeKind, SessionId, Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::Definition;
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
        scheduler.step(now, Input::ReplaceDefinitions(vec![Definition::for_tests(1)]));
        scheduler.step(now, Input::Connected(hello));
        scheduler.step(now, Input::Reported(SessionId(1), Report::Inventory(inventory)));
        let jobs = vec![NewJob { revision: Revision(1), ..NewJob::default() }; 1_200];
        let submit = Submit {
            ticket: Ticket(1),
            jobs: jobs.into(),
            batch: Some(Default::default()),
            require_worker: false,
            idempotency_key: None,
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
