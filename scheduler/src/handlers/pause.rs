//! Somebody pauses jobs and schedules, or lets them go on. Nothing that runs is touched. Waiting jobs stay where they are, and attempts in
//! backlogs are recalled. Slots up to now are decided by what held before, so a pause never reaches back, and what was skipped under it
//! never fires.

use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::handlers::{expire, fire};
use crate::input::PauseRequest;
use crate::job::Job;
use crate::pauses::{self, PauseTarget};
use crate::step::{Answer, Change, Rejection};

pub(crate) fn pause(scheduler: &mut Scheduler, now: Now, request: PauseRequest) {
    let PauseRequest { ticket, target, paused } = request;
    // An operator's command may look at all schedules.
    let reached = scheduler.schedules.reached_by(&target);
    let is_known = scheduler.pauses.contains(&target);
    if reached.is_empty() && matches!(target, PauseTarget::Schedule(..)) && !is_known {
        scheduler.reply(ticket, Answer::Rejected(Rejection::UnknownSchedule));
        return;
    }
    for number in &reached {
        fire::fire(scheduler, now, *number);
    }
    if paused != is_known {
        let since = paused.then_some(now.utc);
        scheduler.pauses.set(target.clone(), since);
        scheduler.change(Change::Paused { target, since });
        for number in reached {
            fire::arm(scheduler, number);
        }
        pauses::apply(scheduler);
        recall(scheduler, now);
    }
    scheduler.reply(ticket, Answer::Done);
}

/// Asks workers for the attempts in their backlogs that may not start now. They give back what they have not begun to prepare.
fn recall(scheduler: &mut Scheduler, now: Now) {
    let workers = scheduler.fleet.with_backlog();
    let prefetched = workers.flat_map(|worker| worker.holdings.prefetched.iter().map(|key| key.job()));
    let is_paused = |job: &Job| scheduler.ready.is_paused(job.definition);
    let paused: Vec<JobId> =
        prefetched.filter(|job| scheduler.jobs.get(job).is_some_and(is_paused)).collect();
    for job in paused {
        expire::recall(scheduler, now, job);
    }
}
