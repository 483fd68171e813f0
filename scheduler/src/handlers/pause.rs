//! Somebody pauses jobs and schedules, or lets them go on. Nothing that runs is touched. Waiting jobs stay where they are, and attempts in
//! backlogs are recalled. Members of a paused batch wait in lanes of their own, which are never next. Slots up to now are decided by what held
//! before, so a pause never reaches back, and what was skipped under it never fires. A pause with an end ends by itself, at the first step after
//! that time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::handlers::{batch, fire};
use crate::ids::DefinitionNo;
use crate::input::PauseRequest;
use crate::job::Job;
use crate::limits::gate;
use crate::origin::Intervention;
use crate::pauses::{PauseChange, PauseResult, PauseTarget};
use crate::placement::recall;
use crate::step::{Answer, Change, Rejection};

pub(crate) fn pause(scheduler: &mut Scheduler, now: Now, request: PauseRequest) {
    let PauseRequest { ticket, target, paused, until, origin } = request;
    if let PauseTarget::Batch(first) = &target
        && !batch::is_visible(scheduler, *first)
    {
        scheduler.reply(ticket, Answer::Rejected(Rejection::NotLive));
        return;
    }
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
    let former = scheduler.pauses.get(&target).cloned();
    let change = match paused {
        true => {
            let asked = Intervention { until, ..Intervention::at(now, origin) };
            scheduler.pauses.renewed(&target, asked).map(PauseChange::Set)
        }
        false => is_known.then_some(PauseChange::Resumed { by: origin.by }),
    };
    let Some(change) = change else {
        let unchanged = PauseResult { in_force: former.clone(), former };
        return scheduler.reply(ticket, Answer::Pause(unchanged.into()));
    };
    let result = PauseResult { former, in_force: change.in_force().cloned() };
    put(scheduler, target.clone(), change);
    // With a new end or origin alone, the same jobs and schedules are held back.
    if paused != is_known {
        for number in reached {
            fire::arm(scheduler, number);
        }
        apply_to(scheduler, &target);
        recall_paused(scheduler, now);
    }
    scheduler.reply(ticket, Answer::Pause(result.into()));
}

/// Ends the pauses whose time has come. Slots before the end are skipped, later ones follow the schedule's policy. After a start it waits for
/// the first reading of jobs.yaml: the rules of schedules come with it.
pub(crate) fn end_due(scheduler: &mut Scheduler, now: Now) {
    if scheduler.pauses.first_end().is_none_or(|(at, _)| at > now.utc) || !scheduler.schedules.are_read {
        return;
    }
    while let Some((at, target)) = scheduler.pauses.first_end().filter(|(at, _)| *at <= now.utc) {
        let target = target.clone();
        let reached = scheduler.schedules.reached_by(&target);
        for number in &reached {
            fire::skip_until_pause_ends(scheduler, now, *number);
        }
        put(scheduler, target.clone(), PauseChange::Ended(at));
        for number in reached {
            fire::arm(scheduler, number);
        }
        apply_to(scheduler, &target);
    }
    scheduler.changed = true;
}

/// Ends the pause of a batch whose last member has just ended.
pub(crate) fn batch_ended(scheduler: &mut Scheduler, first: JobId) {
    let target = PauseTarget::Batch(first);
    if scheduler.pauses.contains(&target) {
        put(scheduler, target, PauseChange::BatchEnded);
        scheduler.changed = true;
    }
}

/// Holds back the jobs that a pause reaches, or lets them go on.
fn apply_to(scheduler: &mut Scheduler, target: &PauseTarget) {
    match target {
        PauseTarget::Batch(first) => batch::requeue_members(scheduler, *first),
        _ => apply(scheduler),
    }
}

fn put(scheduler: &mut Scheduler, target: PauseTarget, pause: PauseChange) {
    scheduler.pauses.set(target.clone(), pause.in_force().cloned());
    scheduler.change(Change::Paused { target, pause });
}

/// Asks workers for the attempts in their backlogs that may not start now. They give back what they have not begun to prepare.
fn recall_paused(scheduler: &mut Scheduler, now: Now) {
    let workers = scheduler.fleet.with_backlog();
    let prefetched = workers.flat_map(|worker| worker.holdings.prefetched.iter().map(|key| key.job()));
    let is_paused = |id: JobId, job: &Job| {
        scheduler.ready.is_paused(job.definition) || scheduler.paused_batch(id, job).is_some()
    };
    let paused: Vec<JobId> =
        prefetched.filter(|id| scheduler.jobs.get(id).is_some_and(|job| is_paused(*id, job))).collect();
    recall::recall_unstarted(scheduler, now, paused);
}

/// Pauses the lanes of definitions that are held back, and resumes those of the others. Walks all definitions and lanes: after an operator's
/// command, at the end of a pause, at a start, at a reading of jobs.yaml, and when secrets are missing or there again.
pub(crate) fn apply(scheduler: &mut Scheduler) {
    let is_paused = |number: &DefinitionNo| {
        scheduler.definitions.at(*number).is_some_and(|definition| scheduler.holds_back(definition))
    };
    let numbers = scheduler.definitions.counts().map(|(number, _)| number);
    let paused: BTreeSet<DefinitionNo> = numbers.filter(is_paused).collect();
    // A lane that was woken in place of others leaves them what it does not take.
    for lane in scheduler.ready.pause(paused) {
        gate::recheck_after_leaving(scheduler, lane);
    }
}
