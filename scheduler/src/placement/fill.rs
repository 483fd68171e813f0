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
    use alloc::string::String;
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;

    use protocol::report::{Availability, Failed, Inventory, Numbered, Outcome, OutputLengths, Timing};
    use protocol::version::VersionRange;
    use protocol::{
        Incarnation, Now, Report, ReportNo, Revision, RuntimeKind, SessionId, Timestamp, Uptime, Usage,
    };

    use super::*;
    use crate::batches::BatchOptions;
    use crate::config::{Config, Counters};
    use crate::definition::Definition;
    use crate::hooks::Hooks;
    use crate::ids::Ticket;
    use crate::input::{Connected, Input, Submit};
    use crate::new_jobs::NewJob;
    use crate::step::Change;

    const NOW: Now = Now { utc: Timestamp(0), up: Uptime(1) };

    /// A scheduler with these definitions and one worker.
    fn with_worker(slots: u32, definitions: Vec<Arc<Definition>>) -> Scheduler {
        let now = NOW;
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
            slots,
            backlog: 0,
            labels: Vec::new(),
            resources: Default::default(),
            runtimes: runtimes.clone(),
            address: "here".into(),
            join: Default::default(),
        };
        let inventory = Inventory { runtimes, attempts: Vec::new(), foreign: Vec::new(), last: true };
        scheduler.step(now, Input::ReplaceDefinitions(definitions));
        scheduler.step(now, Input::Connected(hello));
        scheduler.step(now, Input::Reported(SessionId(1), Report::Inventory(inventory)));
        scheduler
    }

    fn submit(count: usize, batch: BatchOptions) -> Input {
        let jobs = vec![NewJob { revision: Revision(1), ..NewJob::default() }; count];
        Input::Submit(Submit {
            ticket: Ticket(1),
            jobs: jobs.into(),
            batch: Some(batch),
            require_worker: false,
            idempotency_key: None,
        })
    }

    #[test]
    fn the_hooks_of_members_that_end_in_their_lane_belong_to_the_step() {
        let hooks = Hooks { on_end: vec!["after".into()], ..Hooks::default() };
        let report = Definition { hooks, ..(*Definition::for_tests(1)).clone() };
        let after = Definition { name: "after".into(), ..(*Definition::for_tests(2)).clone() };
        let mut scheduler = with_worker(1, vec![report.into(), after.into()]);
        let added = scheduler
            .step(NOW, submit(1_200, BatchOptions { max_failures: Some(1), ..BatchOptions::default() }));
        let token = added.changes.iter().find_map(|change| match change {
            Change::Assigned(assigned) => Some(assigned.token),
            _ => None,
        });
        let failed = Failed {
            token: token.expect("one is assigned"),
            outcome: Outcome::Failed,
            exit_code: Some(1),
            message: String::new(),
            timing: Timing::default(),
            output: OutputLengths::default(),
            usage: Usage::default(),
        };
        let report = Report::Failure(Numbered { first: ReportNo(1), list: vec![failed] });
        let mut input = Input::Reported(SessionId(1), report);
        let mut ended = 0;
        while ended < 1_200 {
            let step = scheduler.step(NOW, input);
            let count = |is: fn(&Change) -> bool| step.changes.iter().filter(|change| is(change)).count();
            let ends = count(|change| matches!(change, Change::Ended(ended) if ended.job.0 <= 1_200));
            assert_eq!(ends, count(|change| matches!(change, Change::Hook(_))), "after {ended} ends");
            assert!(ends > 0, "after {ended} ends");
            ended += ends;
            input = Input::Tick;
        }
    }

    #[test]
    fn one_step_assigns_a_limited_number_and_the_next_one_is_due_at_once() {
        let (now, mut scheduler) = (NOW, with_worker(10_000, vec![Definition::for_tests(1)]));
        let assigned = |step: &crate::step::Step| {
            step.changes.iter().filter(|change| matches!(change, Change::Assigned(_))).count()
        };
        let first = scheduler.step(now, submit(1_200, BatchOptions::default()));
        assert_eq!(assigned(&first), ASSIGNMENTS_PER_STEP);
        for rest in [500, 200] {
            assert_eq!(scheduler.wake_at().up, Some(Uptime(0)));
            assert_eq!(assigned(&scheduler.step(now, Input::Tick)), rest);
        }
        assert_ne!(scheduler.wake_at().up, Some(Uptime(0)));
    }
}
