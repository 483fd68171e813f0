//! Somebody pauses jobs and schedules, or lets them go on. Nothing that runs is touched. Waiting jobs stay where they are, and attempts in
//! backlogs are recalled. Members of a paused batch wait in lanes of their own, which are never next. Slots up to now are decided by what held
//! before, so a pause never reaches back, and what was skipped under it never fires. A pause with an end ends by itself, at the first step after
//! that time.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::handlers::{batch, fire};
use crate::ids::DefinitionNo;
use crate::input::PauseRequest;
use crate::job::Job;
use crate::limits::gate;
use crate::origin::Intervention;
use crate::pauses::{PAUSED_BATCHES_MAX, PauseChange, PauseResult, PauseTarget};
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
    let is_one_more = paused && !is_known && matches!(target, PauseTarget::Batch(_));
    if is_one_more && scheduler.pauses.batches() >= PAUSED_BATCHES_MAX {
        scheduler
            .reply(ticket, Answer::Rejected(Rejection::TooManyPausedBatches { max: PAUSED_BATCHES_MAX }));
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
        match target {
            PauseTarget::Batch(first) => batch::requeue_members(scheduler, first),
            _ => apply(scheduler),
        }
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
    let mut has_others = false;
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
        match target {
            PauseTarget::Batch(first) => batch::requeue_members(scheduler, first),
            _ => has_others = true,
        }
    }
    // It walks all definitions and lanes: once, however many pauses end in this step.
    if has_others {
        apply(scheduler);
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

fn put(scheduler: &mut Scheduler, target: PauseTarget, pause: PauseChange) {
    // Snapshots share the pauses until one changes.
    let pauses = Arc::make_mut(&mut scheduler.pauses);
    pauses.set(target.clone(), pause.in_force().cloned());
    if let PauseTarget::Batch(first) = &target
        && let Some(batch) = scheduler.batches.get(*first)
    {
        pauses.set_end_of_batch(batch);
    }
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

#[cfg(test)]
mod tests {
    use protocol::{Revision, Timestamp, Uptime};

    use super::*;
    use crate::batches::BatchOptions;
    use crate::config::{Config, Counters};
    use crate::definition::Definition;
    use crate::ids::Ticket;
    use crate::input::{Input, Submit};
    use crate::new_jobs::{NewJob, NewJobs};
    use crate::origin::Origin;
    use crate::step::Effect;

    const NOW: Now = Now { utc: Timestamp(0), up: Uptime(1) };

    fn submit(scheduler: &mut Scheduler, count: u32) {
        let job = NewJob { revision: Revision(1), ..NewJob::default() };
        let jobs = NewJobs::Copies(alloc::boxed::Box::new(job), count);
        let batch = Some(BatchOptions::default());
        let (ticket, require_worker, idempotency_key) = (Ticket(1), false, None);
        scheduler.step(NOW, Input::Submit(Submit { ticket, jobs, batch, require_worker, idempotency_key }));
    }

    /// A scheduler with this number of batches of two members.
    fn with_batches(count: usize) -> Scheduler {
        let mut scheduler =
            Scheduler::new(Config { slice: 5_000, ..Config::for_tests() }, Counters::default());
        scheduler.step(NOW, Input::ReplaceDefinitions(alloc::vec![Definition::for_tests(1)]));
        for _ in 0..count {
            submit(&mut scheduler, 2);
        }
        scheduler
    }

    /// Pauses or resumes a batch. Returns why not, if it is refused.
    fn ask(scheduler: &mut Scheduler, first: u64, paused: bool, until: Option<i64>) -> Option<Rejection> {
        let target = PauseTarget::Batch(JobId(first));
        let (ticket, until, origin) = (Ticket(2), until.map(Timestamp), Origin::default());
        let request = PauseRequest { ticket, target, paused, until, origin };
        let step = scheduler.step(NOW, Input::Pause(request));
        step.effects.into_iter().find_map(|effect| match effect {
            Effect::Reply(_, Answer::Rejected(rejection)) => Some(rejection),
            _ => None,
        })
    }

    #[test]
    fn at_most_a_thousand_batches_are_paused() {
        let mut scheduler = with_batches(PAUSED_BATCHES_MAX + 1);
        let firsts: Vec<u64> = (0..=PAUSED_BATCHES_MAX as u64).map(|no| no * 2 + 1).collect();
        let (last, others) = firsts.split_last().unwrap();
        for first in others {
            assert_eq!(ask(&mut scheduler, *first, true, None), None);
        }
        let refused = Some(Rejection::TooManyPausedBatches { max: PAUSED_BATCHES_MAX });
        assert_eq!(ask(&mut scheduler, *last, true, None), refused);
        assert_eq!(ask(&mut scheduler, *last, false, None), None, "a resume of what is not paused");
        assert_eq!(ask(&mut scheduler, 1, true, Some(5)), None, "another end of one that is paused");
        assert_eq!(ask(&mut scheduler, 1, false, None), None);
        assert_eq!(ask(&mut scheduler, *last, true, None), None);
        assert!(crate::audit::audit(&scheduler).is_empty());
    }

    #[test]
    fn snapshots_share_the_pauses_until_one_changes_and_know_the_members_of_paused_batches() {
        let mut scheduler = with_batches(3);
        ask(&mut scheduler, 3, true, None);
        let first = scheduler.snapshot();
        submit(&mut scheduler, 2);
        assert!(Arc::ptr_eq(&first.pauses, &scheduler.snapshot().pauses));
        let batches = [2, 3, 4, 5].map(|job| first.pauses.batch_of(JobId(job)).map(|first| first.0));
        assert_eq!(batches, [None, Some(3), Some(3), None]);
        ask(&mut scheduler, 3, false, None);
        assert_eq!(scheduler.snapshot().pauses.batch_of(JobId(3)), None);
        assert_eq!(first.pauses.batch_of(JobId(3)), Some(JobId(3)), "an earlier snapshot stays as it was");
    }

    #[test]
    fn pauses_of_batches_and_others_that_end_in_one_step_all_let_jobs_go_on() {
        let mut scheduler = with_batches(2);
        let until = Some(Timestamp(5));
        for target in [PauseTarget::Server, PauseTarget::Batch(JobId(1)), PauseTarget::Batch(JobId(3))] {
            let (ticket, origin) = (Ticket(2), Origin::default());
            scheduler.step(NOW, Input::Pause(PauseRequest { ticket, target, paused: true, until, origin }));
        }
        let held_back = |scheduler: &Scheduler| {
            let counts = scheduler.ready.counts().map(|(number, _, counts)| {
                if scheduler.ready.is_paused(number) { counts.jobs } else { counts.paused }
            });
            counts.sum::<usize>()
        };
        assert_eq!(held_back(&scheduler), 4);
        scheduler.step(Now { utc: Timestamp(5), up: Uptime(2) }, Input::Tick);
        assert_eq!(held_back(&scheduler), 0);
        assert_eq!(scheduler.pauses.iter().count(), 0);
    }
}
