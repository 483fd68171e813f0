//! The next slot of a schedule is due: each slot that has passed gets its verdict, and those that fire become jobs.
//!
//! A slot's row in the ledger, its job, and the new cursor are changes of the same step, so they are committed together: a crash
//! leaves either all of them or none, and no slot fires twice.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::order::StopCause;
use protocol::{JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::details::JobDetails;
use crate::handlers::{admission, cancel, submit, unique};
use crate::ids::ScheduleNo;
use crate::job::Job;
use crate::new_jobs::{NewJob, StartTime};
use crate::schedule::catch_up::{self, InactiveReason, PlannedSlots, SlotDecision, SlotRun};
use crate::schedule::{Overlap, Schedule};
use crate::schedules::{CurrentDefinition, Entry, FireRow, FireVerdict, LastFire, MissReason, SkipReason};
use crate::step::Change;
use crate::timers::WallTimer;

/// Decides about all slots that are due, and sets the timer for the next one. Returns how many jobs were made.
pub(crate) fn fire(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) -> usize {
    if let Some(entry) = scheduler.schedules.entries.get_mut(&number) {
        entry.due_at = None;
    }
    let inactive = inactive_reason(scheduler, number);
    let made = decide_due_slots(scheduler, now, number, inactive);
    arm(scheduler, number);
    made
}

/// Gives a verdict to each slot that is due. Returns how many became jobs.
pub(crate) fn decide_due_slots(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    inactive: Option<InactiveReason>,
) -> usize {
    let verdicts = carry_out_plan(scheduler, now, number, (PlannedSlots::Due, now.utc), inactive);
    verdicts.iter().filter(|verdict| verdict.has_fired()).count()
}

/// Plans that a schedule carries out at most when its rule changes: a reading of jobs.yaml is one step, so it does not make any number of
/// jobs.
const PLANS_AT_A_CHANGE: usize = 10;

/// Decides about all slots of a rule that is replaced, also about those that wait for their jitter: their jobs start when they would have.
pub(crate) fn decide_slots_of_ended_rule(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) {
    let inactive = inactive_reason(scheduler, number);
    for _ in 0..PLANS_AT_A_CHANGE {
        if carry_out_plan(scheduler, now, number, (PlannedSlots::Passed, now.utc), inactive).is_empty() {
            return;
        }
    }
    carry_out_plan(
        scheduler,
        now,
        number,
        (PlannedSlots::Passed, now.utc),
        Some(InactiveReason::RuleChanged),
    );
}

/// Records the slots that have passed of a schedule that leaves jobs.yaml, and wait for their jitter: they are missed.
pub(crate) fn miss_slots_of_removed_schedule(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) {
    let inactive = inactive_reason(scheduler, number).unwrap_or(InactiveReason::Removed);
    carry_out_plan(scheduler, now, number, (PlannedSlots::Passed, now.utc), Some(inactive));
}

/// Why a schedule is inactive now; none if it is active.
fn inactive_reason(scheduler: &Scheduler, number: ScheduleNo) -> Option<InactiveReason> {
    let entry = scheduler.schedules.entries.get(&number)?;
    scheduler.schedules.inactive_reason(&entry.row, &scheduler.pauses)
}

/// Skips the slots of a paused schedule that come before the end of its pauses. If the server was down at the end, later slots have passed,
/// too: they are left to the policy.
pub(crate) fn skip_until_pause_ends(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) {
    let inactive = inactive_reason(scheduler, number);
    let Some(entry) = scheduler.schedules.entries.get(&number).filter(|_| inactive.is_some()) else { return };
    let end = scheduler.schedules.paused_until(&entry.row, &scheduler.pauses);
    let end = end.filter(|_| inactive == Some(InactiveReason::Paused));
    let until = end.map_or(now.utc, |end| now.utc.min(Timestamp(end.0.saturating_sub(1))));
    carry_out_plan(scheduler, now, number, (PlannedSlots::Due, until), inactive);
}

/// Carries a plan for the slots until a time out. Returns the verdict of each of its runs.
fn carry_out_plan(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    (slots, until): (PlannedSlots, Timestamp),
    inactive: Option<InactiveReason>,
) -> Vec<FireVerdict> {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return Vec::new() };
    let (Some(schedule), Some(current)) = (entry.schedule.clone(), current_definition(scheduler, entry))
    else {
        return Vec::new();
    };
    let runs = catch_up::plan(&schedule, entry.row.cursor, until, slots, inactive, current.catch_up);
    if runs.is_empty() {
        return Vec::new();
    }
    let mut verdicts = Vec::with_capacity(runs.len());
    for run in runs {
        let verdict = carry_out_run(scheduler, now, number, &schedule, current, run);
        verdicts.push(verdict);
        record(scheduler, now, number, run, verdict);
    }
    put_row(scheduler, number);
    verdicts
}

/// The keys of jobs.yaml for the definition of a schedule; none while jobs.yaml lacks it.
fn current_definition(scheduler: &Scheduler, entry: &Entry) -> Option<CurrentDefinition> {
    scheduler.schedules.by_definition.get(&entry.row.definition)?.current
}

/// Makes the job of a slot that fires, and returns the verdict of a run for the ledger.
fn carry_out_run(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    schedule: &Schedule,
    current: CurrentDefinition,
    run: SlotRun,
) -> FireVerdict {
    let late = match run.decision {
        SlotDecision::Fire => false,
        SlotDecision::CatchUp => true,
        SlotDecision::Inactive(InactiveReason::Paused) => return FireVerdict::Skipped(SkipReason::Paused),
        SlotDecision::Inactive(InactiveReason::Disabled) => {
            return FireVerdict::Skipped(SkipReason::Disabled);
        }
        SlotDecision::Inactive(InactiveReason::RuleChanged) => {
            return FireVerdict::Missed(MissReason::RuleChanged);
        }
        SlotDecision::Inactive(InactiveReason::Removed) => return FireVerdict::Missed(MissReason::Removed),
        SlotDecision::MissedPolicy => return FireVerdict::Missed(MissReason::Policy),
        SlotDecision::MissedWindow => return FireVerdict::Missed(MissReason::Window),
        SlotDecision::MissedLimit => return FireVerdict::Missed(MissReason::Limit),
    };
    match make_job(scheduler, now, number, schedule, current, run.from) {
        Ok(job) if late => FireVerdict::CaughtUp(job),
        Ok(job) => FireVerdict::Fired(job),
        Err(reason) => FireVerdict::Skipped(reason),
    }
}

/// Makes the job of a slot, unless something is in its way.
fn make_job(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    schedule: &Schedule,
    current: CurrentDefinition,
    slot: Timestamp,
) -> Result<JobId, SkipReason> {
    let name = scheduler.schedules.entries.get(&number).map(|entry| entry.row.definition.clone());
    let (Some(name), Some(definition)) = (name, scheduler.definitions.find(current.revision)) else {
        // The reading of jobs.yaml that brought the schedule has brought its definition.
        return Err(SkipReason::Disabled);
    };
    let live: Vec<JobId> = match (scheduler.schedules.by_definition.get(&name), current.overlap) {
        (None, _) | (_, Overlap::Allow) => Vec::new(),
        (Some(state), Overlap::Replace) => state.live.iter().copied().collect(),
        (Some(state), Overlap::Skip) => state.live.first().copied().into_iter().collect(),
        (Some(state), Overlap::Queue) if state.live.len() > Overlap::QUEUE_MAX => {
            return Err(SkipReason::Limit);
        }
        (Some(state), Overlap::Queue) => state.live.first().copied().into_iter().collect(),
    };
    if let (Overlap::Skip, Some(earlier)) = (current.overlap, live.first()) {
        return Err(SkipReason::Overlap(*earlier));
    }
    let details = Some(Box::new(details_at(schedule, slot)));
    let due_at = schedule.due_at(slot);
    // A slot is decided before its jitter has passed only if its rule ends.
    let run_at = (due_at > now.utc).then_some(StartTime::At(due_at));
    let mut new = NewJob { revision: current.revision, details, run_at, ..NewJob::default() };
    if let Some(other) = unique::duplicate_of(scheduler, &new) {
        return Err(SkipReason::Duplicate(other));
    }
    // The queue does not grow if it waits for an earlier one, or takes the place of a queued one.
    new.waits_for_earlier = match current.overlap {
        Overlap::Replace => {
            live.iter().any(|job| scheduler.jobs.get(job).is_some_and(Job::is_queued_or_held))
        }
        _ => !live.is_empty(),
    };
    if !submit::has_room(scheduler, 1)
        || admission::check(scheduler, now.utc, core::iter::once(&new)).is_err()
    {
        return Err(SkipReason::Limit);
    }
    // Only the check needed this. The earlier jobs that are cancelled below may end at once, and then it does not wait.
    new.waits_for_earlier = false;
    let job = JobId(scheduler.counters.job.0 + 1);
    if current.overlap == Overlap::Replace {
        live.into_iter().for_each(|earlier| replace(scheduler, now, earlier, job));
    }
    scheduler.counters.job = job;
    // It may end an earlier job of the schedule.
    let claim = unique::make_way(scheduler, now, &mut new, job);
    new.waits_for_earlier |= current.overlap.runs_one_at_a_time()
        && scheduler.schedules.by_definition.get(&name).is_some_and(|state| !state.live.is_empty());
    scheduler.schedules.add_job(job, name);
    let wait = submit::add(scheduler, now.utc, job, new, definition, None);
    submit::begin_wait(scheduler, job, wait);
    if let Some(claim) = claim {
        unique::put(scheduler, claim);
    }
    admission::make_room(scheduler, now, job);
    Ok(job)
}

/// Cancels the job of an earlier slot for a new one.
fn replace(scheduler: &mut Scheduler, now: Now, earlier: JobId, job: JobId) {
    let attempt = scheduler.jobs.get(&earlier).and_then(Job::attempt);
    let is_cancelled = attempt.is_some_and(|attempt| attempt.stopping == Some(StopCause::Cancel));
    scheduler.schedules.replace(earlier, job, is_cancelled);
    cancel::cancel_for(scheduler, now, earlier, format!("job {job} of the next slot, which replaces it"));
}

/// The details of the job of a slot.
pub(crate) fn details_at(schedule: &Schedule, slot: Timestamp) -> JobDetails {
    let params = schedule.params.as_deref().cloned().unwrap_or_default();
    JobDetails { overrides: schedule.overrides_at(slot), params, ..JobDetails::default() }
}

/// Writes the row of the ledger, and moves the cursor.
pub(crate) fn record(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    run: SlotRun,
    verdict: FireVerdict,
) {
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    entry.row.cursor = entry.row.cursor.max(run.to);
    let extended = entry.extendable_row.take().filter(|row| row.verdict == verdict && !verdict.has_fired());
    let mut row = extended.unwrap_or_else(|| FireRow {
        definition: entry.row.definition.clone(),
        schedule: entry.row.schedule.clone(),
        from: run.from,
        to: run.to,
        count: catch_up::SlotCount { count: 0, exact: true },
        verdict,
        at: now.utc,
    });
    row.to = run.to;
    row.at = now.utc;
    row.count.count = row.count.count.saturating_add(run.count.count);
    row.count.exact &= run.count.exact;
    match verdict {
        FireVerdict::Fired(job) | FireVerdict::CaughtUp(job) => {
            entry.row.last_fire = Some(LastFire { slot: run.from, at: now.utc, job });
        }
        // A backfill writes its rows itself.
        FireVerdict::Backfilled(_) => {}
        FireVerdict::Skipped(_) | FireVerdict::Missed(_) => entry.extendable_row = Some(row.clone()),
    }
    scheduler.change(Change::Fire(row));
}

/// Writes down what is kept about a schedule.
pub(crate) fn put_row(scheduler: &mut Scheduler, number: ScheduleNo) {
    if let Some(row) = scheduler.schedules.entries.get(&number).map(|entry| entry.row.clone()) {
        scheduler.change(Change::Schedule(row));
    }
}

/// Interval in which the further slots of paused and disabled schedules are written down: a schedule of 100 ms costs one write for 50 slots, and the
/// ledger is never older than people would wait for it.
const INACTIVE_ROW_INTERVAL: Duration = Duration::from_secs(5);

/// Sets the timer to the next slot, or removes it.
pub(crate) fn arm(scheduler: &mut Scheduler, number: ScheduleNo) {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return };
    let cursor = entry.schedule.is_some().then_some(entry.row.cursor);
    scheduler.schedules.cursors.put(number, cursor);
    let is_inactive = scheduler.schedules.inactive_reason(&entry.row, &scheduler.pauses).is_some();
    let written = entry.extendable_row.as_ref().filter(|row| is_inactive && row.verdict.is_inactive());
    let soonest = written.map_or(Timestamp(i64::MIN), |row| row.at + INACTIVE_ROW_INTERVAL);
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    let next = entry.schedule.as_ref().and_then(|schedule| {
        let slot = schedule.next_slot_after(entry.row.cursor)?;
        Some(schedule.due_at(slot).max(soonest))
    });
    let before = core::mem::replace(&mut entry.due_at, next);
    if let Some(at) = before {
        scheduler.timers.clear_wall(at, WallTimer::Fire(number));
    }
    if let Some(at) = next {
        scheduler.timers.set_wall(at, WallTimer::Fire(number));
    }
}
