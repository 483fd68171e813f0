//! A reading of jobs.yaml reaches the schedules: new ones begin, changed ones begin anew, those that are gone keep their cursor. The rules
//! are in [`crate::schedules`]. This walks all schedules, once per reading.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::handlers::{due, fire};
use crate::ids::ScheduleNo;
use crate::pauses;
use crate::schedule::Schedule;
use crate::schedule::catch_up::{Closed, SlotCount, SlotRun, Verdict};
use crate::schedules::{Current, Entry, FireVerdict, MissReason, ScheduleRow};

pub(crate) fn reschedule(scheduler: &mut Scheduler, now: Now, definitions: &[Arc<Definition>]) {
    settle(scheduler, now);
    let mut present = BTreeSet::new();
    for state in scheduler.schedules.names.values_mut() {
        (state.current, state.group) = (None, None);
    }
    for definition in definitions.iter().filter(|definition| !definition.timetable.schedules.is_empty()) {
        let name: Arc<str> = definition.name.as_str().into();
        let timetable = &definition.timetable;
        let state = scheduler.schedules.names.entry(name.clone()).or_default();
        state.group = pauses::group_of(definition);
        state.current = Some(Current {
            revision: definition.revision,
            enabled: definition.enabled,
            overlap: timetable.overlap,
            catch_up: timetable.catch_up,
        });
        for schedule in &timetable.schedules {
            present.insert(take_in(scheduler, now, &name, schedule));
        }
    }
    let gone: Vec<ScheduleNo> =
        scheduler.schedules.entries.keys().filter(|number| !present.contains(number)).copied().collect();
    for number in gone {
        leave_out(scheduler, now, number);
    }
    release(scheduler);
}

/// Decides what is due by the rules that held so far.
fn settle(scheduler: &mut Scheduler, now: Now) {
    // Slots of closed schedules may have passed before their timer.
    let is_due = |entry: &Entry| {
        entry.due_at.is_some_and(|at| at <= now.utc)
            || scheduler.schedules.closed(&entry.row, &scheduler.pauses).is_some()
    };
    let due = scheduler.schedules.entries.iter().filter(|(_, entry)| is_due(entry));
    for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
        fire::fire(scheduler, now, number);
    }
}

fn take_in(scheduler: &mut Scheduler, now: Now, name: &Arc<str>, schedule: &Schedule) -> ScheduleNo {
    let fingerprint = schedule.fingerprint();
    let key = (name.clone(), schedule.id.clone());
    let known = scheduler.schedules.numbers.get(&key).copied();
    let number = known.unwrap_or_else(|| {
        scheduler.schedules.add(ScheduleRow {
            definition: key.0,
            schedule: key.1,
            cursor: now.utc,
            fingerprint,
            removed_at: None,
            last_fire: None,
        })
    });
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return number };
    entry.schedule = Some(schedule.clone());
    let was_removed = entry.row.removed_at.take().is_some();
    let is_changed = core::mem::replace(&mut entry.row.fingerprint, fingerprint) != fingerprint;
    if is_changed && entry.row.cursor < now.utc {
        let at = now.utc;
        let count = SlotCount { count: 0, exact: true };
        let run = SlotRun { from: at, to: at, count, verdict: Verdict::Closed(Closed::RuleChanged) };
        fire::record(scheduler, now, number, run, FireVerdict::Missed(MissReason::RuleChanged));
    } else if was_removed {
        fire::decide(scheduler, now, number, Some(Closed::Removed));
    }
    if known.is_none() || is_changed || was_removed {
        fire::put_row(scheduler, number);
    }
    fire::arm(scheduler, number);
    number
}

fn leave_out(scheduler: &mut Scheduler, now: Now, number: ScheduleNo) {
    let Some(entry) = scheduler.schedules.entries.get_mut(&number) else { return };
    entry.schedule = None;
    let is_news = entry.row.removed_at.is_none();
    if is_news {
        entry.row.removed_at = Some(now.utc);
        entry.open = None;
    }
    fire::arm(scheduler, number);
    if is_news {
        fire::put_row(scheduler, number);
    }
}

/// Jobs that waited for an earlier one may go on if `overlap` says so now.
fn release(scheduler: &mut Scheduler) {
    let waiting: Vec<JobId> = scheduler
        .schedules
        .names
        .values()
        .filter(|state| state.live.len() > 1)
        .flat_map(|state| state.live.iter().copied())
        .collect();
    for job in waiting {
        if !scheduler.schedules.must_wait(job) {
            due::set_timer(scheduler, job);
        }
    }
}
