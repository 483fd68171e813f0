//! Makes the jobs of past slots on request. A slot becomes at most one job ever: the request names slots that were decided and made no
//! job, by a reading of the ledger, and is rejected if another backfill came between that reading and now. Slots that are not decided
//! yet cannot be named, so the schedule itself never fires one of these.

use alloc::boxed::Box;
use alloc::vec::Vec;

use protocol::{JobId, Now, Timestamp};

use crate::batches::BatchOptions;
use crate::core::Scheduler;
use crate::handlers::{admission, batch, fire, submit};
use crate::ids::{DefinitionNo, ScheduleNo};
use crate::input::BackfillRequest;
use crate::new_jobs::{NewJob, StartTime};
use crate::schedule::backfill::SLOTS_MAX;
use crate::schedule::catch_up::SlotCount;
use crate::schedule::{Overlap, Schedule};
use crate::schedules::{CurrentDefinition, FireRow, FireVerdict};
use crate::step::{Answer, Change, Rejection};

pub(crate) fn backfill(scheduler: &mut Scheduler, now: Now, request: BackfillRequest) {
    let ticket = request.ticket;
    decide_passed_slots(scheduler, now, &request);
    let checked = check(scheduler, &request).and_then(|target| {
        let jobs = jobs_of(scheduler, &request, &target);
        admission::check(scheduler, now.utc, jobs.iter())?;
        Ok((target, jobs))
    });
    match checked {
        Err(rejection) => scheduler.reply(ticket, Answer::Rejected(rejection)),
        Ok(_) if request.slots.is_empty() => scheduler.reply(ticket, Answer::Done),
        Ok((target, jobs)) => accept(scheduler, now, request, &target, jobs),
    }
}

/// Slots of a paused schedule are written down now and then only. A backfill is about slots that have passed, so it does not wait for that.
fn decide_passed_slots(scheduler: &mut Scheduler, now: Now, request: &BackfillRequest) {
    let key = (request.definition.clone(), request.schedule.clone());
    let Some(number) = scheduler.schedules.numbers.get(&key).copied() else { return };
    let Some(entry) = scheduler.schedules.entries.get(&number) else { return };
    if scheduler.schedules.inactive_reason(&entry.row, &scheduler.pauses).is_some() {
        fire::fire(scheduler, now, number);
    }
}

/// The schedule that a request is about.
struct Target {
    number: ScheduleNo,
    schedule: Schedule,
    current: CurrentDefinition,
    definition: DefinitionNo,
}

fn check(scheduler: &Scheduler, request: &BackfillRequest) -> Result<Target, Rejection> {
    let key = (request.definition.clone(), request.schedule.clone());
    let number = *scheduler.schedules.numbers.get(&key).ok_or(Rejection::UnknownSchedule)?;
    let entry = scheduler.schedules.entries.get(&number).ok_or(Rejection::UnknownSchedule)?;
    let schedule = entry.schedule.clone().ok_or(Rejection::UnknownSchedule)?;
    let name = scheduler.schedules.by_definition.get(&request.definition);
    let current = name.and_then(|state| state.current).ok_or(Rejection::UnknownSchedule)?;
    let definition = scheduler.definitions.find(current.revision).ok_or(Rejection::UnknownDefinition)?;
    if !current.enabled {
        return Err(Rejection::Disabled);
    }
    let is_undecided = request.slots.last().is_some_and(|last| *last > entry.row.cursor);
    let is_ordered = request.slots.is_sorted_by(|earlier, later| earlier < later);
    let has_changed = entry.backfilled_in.is_some_and(|group| group > request.read_at);
    if has_changed || is_undecided || !is_ordered {
        return Err(Rejection::LedgerReadingTooOld);
    }
    let asked = request.slots.len();
    // The jobs of a backfill have consecutive numbers, so no duplicate among them could be left out.
    let is_unique =
        scheduler.definitions.at(definition).is_some_and(|definition| definition.limits.unique.is_some());
    if is_unique {
        return Err(Rejection::UniqueBackfill);
    }
    if asked > SLOTS_MAX || !submit::has_room(scheduler, asked) {
        return Err(Rejection::QueueFull { jobs_max: scheduler.config.jobs_max, asked });
    }
    Ok(Target { number, schedule, current, definition })
}

/// The jobs of these slots, in their order. Unless `overlap` allows it, each waits until all earlier jobs of schedules of the definition have
/// ended.
fn jobs_of(scheduler: &Scheduler, request: &BackfillRequest, target: &Target) -> Vec<NewJob> {
    let state = scheduler.schedules.by_definition.get(&request.definition);
    let has_live = state.is_some_and(|state| !state.live.is_empty());
    let one_at_a_time = target.current.overlap != Overlap::Allow;
    let job_of = |(index, slot): (u32, &Timestamp)| NewJob {
        revision: target.current.revision,
        run_at: Some(StartTime::After(request.interval.saturating_mul(index))),
        waits_for_earlier: one_at_a_time && (has_live || index > 0),
        submitted_by: request.submitted_by.clone(),
        details: Some(Box::new(fire::details_at(&target.schedule, *slot))),
        ..NewJob::default()
    };
    (0..).zip(&request.slots).map(job_of).collect()
}

/// Makes the jobs, as one batch, in the order of their slots.
fn accept(scheduler: &mut Scheduler, now: Now, request: BackfillRequest, target: &Target, jobs: Vec<NewJob>) {
    let first = JobId(scheduler.counters.job.0 + 1);
    let count = u32::try_from(request.slots.len()).unwrap_or(u32::MAX);
    let mut rows = Vec::with_capacity(request.slots.len());
    batch::begin(scheduler, now.utc, first, count, BatchOptions::default());
    for (slot, new) in request.slots.into_iter().zip(jobs) {
        let job = JobId(scheduler.counters.job.0 + 1);
        scheduler.counters.job = job;
        scheduler.schedules.add_job(job, request.definition.clone());
        let wait = submit::add(scheduler, now.utc, job, new, target.definition, Some(first));
        submit::begin_wait(scheduler, job, wait);
        admission::make_room(scheduler, now, job);
        rows.push(FireRow {
            definition: request.definition.clone(),
            schedule: request.schedule.clone(),
            from: slot,
            to: slot,
            count: SlotCount { count: 1, exact: true },
            verdict: FireVerdict::Backfilled(job),
            at: now.utc,
        });
    }
    for row in rows {
        scheduler.change(Change::Fire(row));
    }
    let group = scheduler.counters.group;
    if let Some(entry) = scheduler.schedules.entries.get_mut(&target.number) {
        entry.backfilled_in = Some(group);
    }
    scheduler.reply_accepted(request.ticket, first, count, now.utc, None);
}
