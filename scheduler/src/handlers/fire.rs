//! The next slot of a schedule is due: each slot that has passed gets its verdict, and those that fire become jobs.
//!
//! A slot's row in the ledger, its job, and the cursor behind it are changes of the same step, so they are committed together: a crash
//! leaves either all of them or none, and no slot fires twice.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::{JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::details::JobDetails;
use crate::handlers::{admission, cancel, submit, unique};
use crate::ids::ScheduleNo;
use crate::new_jobs::NewJob;
use crate::schedule::catch_up::{self, Closed, SlotRun, Verdict};
use crate::schedule::{Overlap, Schedule};
use crate::schedules::{Current, Entry, FireRow, FireVerdict, LastFire, MissReason, SkipReason};
use crate::step::Change;
use crate::timers::Date;

/// Decides about all slots that are due, and sets the timer for the next one. Returns how many jobs were made.
pub(crate) fn fire(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) -> usize {
    if let Some(entry) = scheduler.schedules.entries.get_mut(&number) {
        entry.due_at = None;
    }
    let closed = scheduler
        .schedules
        .entries
        .get(&number)
        .and_then(|entry| scheduler.schedules.closed(&entry.row, &scheduler.pauses));
    let made = decide(scheduler, now, number, closed);
    arm(scheduler, number);
    made
}

/// Gives a verdict to each slot that is due. Returns how many became jobs.
pub(crate) fn decide(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    closed: Option<Closed>,
) -> usize {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return 0 };
    let (Some(schedule), Some(current)) = (entry.schedule.clone(), current_of(scheduler, entry)) else {
        return 0;
    };
    let runs = catch_up::plan(&schedule, entry.row.cursor, now.utc, closed, current.catch_up);
    if runs.is_empty() {
        return 0;
    }
    let mut made = 0;
    for run in runs {
        let verdict = judge(scheduler, now, number, &schedule, current, run);
        made += usize::from(verdict.has_fired());
        record(scheduler, now, number, run, verdict);
    }
    put_row(scheduler, number);
    made
}

fn current_of(scheduler: &Scheduler, entry: &Entry) -> Option<Current> {
    scheduler.schedules.names.get(&entry.row.definition)?.current
}

fn judge(
    scheduler: &mut Scheduler,
    now: Now,
    number: ScheduleNo,
    schedule: &Schedule,
    current: Current,
    run: SlotRun,
) -> FireVerdict {
    let late = match run.verdict {
        Verdict::Fire => false,
        Verdict::CatchUp => true,
        Verdict::Closed(Closed::Paused) => return FireVerdict::Skipped(SkipReason::Paused),
        Verdict::Closed(Closed::Disabled) => return FireVerdict::Skipped(SkipReason::Disabled),
        Verdict::Closed(Closed::RuleChanged) => return FireVerdict::Missed(MissReason::RuleChanged),
        Verdict::Closed(Closed::Removed) => return FireVerdict::Missed(MissReason::Removed),
        Verdict::MissedPolicy => return FireVerdict::Missed(MissReason::Policy),
        Verdict::MissedWindow => return FireVerdict::Missed(MissReason::Window),
        Verdict::MissedLimit => return FireVerdict::Missed(MissReason::Limit),
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
    current: Current,
    slot: Timestamp,
) -> Result<JobId, SkipReason> {
    let name = scheduler.schedules.entries.get(&number).map(|entry| entry.row.definition.clone());
    let (Some(name), Some(definition)) = (name, scheduler.definitions.find(current.revision)) else {
        // The reading of jobs.yaml that brought the schedule has brought its definition.
        return Err(SkipReason::Disabled);
    };
    let live: Vec<JobId> = match (scheduler.schedules.names.get(&name), current.overlap) {
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
    let mut new = NewJob { revision: current.revision, details, ..NewJob::default() };
    if let Some(other) = unique::duplicate_of(scheduler, &new) {
        return Err(SkipReason::Duplicate(other));
    }
    if !submit::has_room(scheduler, 1)
        || admission::check(scheduler, now.utc, core::iter::once(&new)).is_err()
    {
        return Err(SkipReason::Limit);
    }
    if current.overlap == Overlap::Replace {
        for earlier in &live {
            cancel::cancel_for(scheduler, now, *earlier, format!("the next slot of {name}"));
        }
    }
    let job = JobId(scheduler.counters.job.0 + 1);
    scheduler.counters.job = job;
    // It may end an earlier job of the schedule.
    let claim = unique::make_way(scheduler, now, &mut new, job);
    new.waits_for_earlier |= current.overlap.runs_one_at_a_time()
        && scheduler.schedules.names.get(&name).is_some_and(|state| !state.live.is_empty());
    scheduler.schedules.hold(job, name);
    let wait = submit::add(scheduler, now.utc, job, new, definition, None);
    submit::begin_wait(scheduler, job, wait);
    if let Some(claim) = claim {
        unique::put(scheduler, claim);
    }
    admission::make_room(scheduler, now, job);
    Ok(job)
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
    let open = entry.open.take().filter(|open| open.verdict == verdict && !verdict.has_fired());
    let mut row = open.unwrap_or_else(|| FireRow {
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
        FireVerdict::Skipped(_) | FireVerdict::Missed(_) => entry.open = Some(row.clone()),
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
const CLOSED_EVERY: Duration = Duration::from_secs(5);

/// Sets the timer to the next slot, or removes it.
pub(crate) fn arm(scheduler: &mut Scheduler, number: ScheduleNo) {
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return };
    let is_closed = scheduler.schedules.closed(&entry.row, &scheduler.pauses).is_some();
    let written = entry.open.as_ref().filter(|open| is_closed && open.verdict.is_closed());
    let soonest = written.map_or(Timestamp(i64::MIN), |open| open.at + CLOSED_EVERY);
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    let next = entry.schedule.as_ref().and_then(|schedule| {
        let slot = schedule.next_slot_after(entry.row.cursor)?;
        Some(schedule.due_at(slot).max(soonest))
    });
    let before = core::mem::replace(&mut entry.due_at, next);
    if let Some(at) = before {
        scheduler.timers.clear_date(at, Date::Fire(number));
    }
    if let Some(at) = next {
        scheduler.timers.set_date(at, Date::Fire(number));
    }
}
