//! Checks expectations by timers: none of them is looked at unless something happens to it.
//!
//! - A success clears `stale` and begins the time anew. A definition is stale from the end of `success_within` on, whether its jobs failed,
//!   wait, or were never made.
//! - A run that is longer than `max_duration` makes it `slow`, while it runs or at its end. A success within `max_duration` clears that.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::Outcome;
use protocol::{Fence, JobId, Now, Token};

use crate::core::Scheduler;
use crate::definition::{Definition, Expect};
use crate::expectations::ExpectationRow;
use crate::ids::ExpectationNo;
use crate::job::{Attempt, Job};
use crate::step::{Change, ClosedAttempt};
use crate::timers::{UptimeTimer, WallTimer};

/// Follows jobs.yaml. This walks all expectations, once per reading.
pub(crate) fn redefine(scheduler: &mut Scheduler, now: Now, definitions: &[Arc<Definition>]) {
    let mut gone: Vec<ExpectationNo> = scheduler.expectations.entries.keys().copied().collect();
    for definition in definitions.iter().filter(|it| it.expect != Expect::default()) {
        let known = scheduler.expectations.find(&definition.name);
        gone.retain(|number| Some(*number) != known);
        let number = known.unwrap_or_else(|| {
            let definition = definition.name.as_str().into();
            let row = ExpectationRow { definition, awaited_since: None, stale_since: None, slow: None };
            scheduler.expectations.add(row)
        });
        adapt(scheduler, now, number, definition.expect, known.is_none());
    }
    for number in gone {
        set_timer(scheduler, number, None);
        if let Some(entry) = scheduler.expectations.remove(number) {
            scheduler.change(Change::ExpectationDropped { definition: entry.row.definition });
        }
    }
}

fn adapt(scheduler: &mut Scheduler, now: Now, number: ExpectationNo, expect: Expect, is_new: bool) {
    let Some(entry) = scheduler.expectations.entries.get_mut(&number) else { return };
    entry.expect = expect;
    let mut row = entry.row.clone();
    row.awaited_since = expect.success_within.and(row.awaited_since.or(Some(now.utc)));
    let stale_at = row.awaited_since.zip(expect.success_within).map(|(since, within)| since + within);
    row.stale_since = row.stale_since.filter(|_| stale_at.is_some_and(|at| at <= now.utc));
    row.slow = row.slow.filter(|_| expect.max_duration.is_some());
    put(scheduler, number, row, is_new);
    arm(scheduler, number);
}

/// The time without a success is over.
pub(crate) fn become_stale(scheduler: &mut Scheduler, now: Now, number: ExpectationNo) {
    let Some(entry) = scheduler.expectations.entries.get_mut(&number) else { return };
    entry.stale_at = None;
    let mut row = entry.row.clone();
    row.stale_since = row.stale_since.or(Some(now.utc));
    put(scheduler, number, row, false);
}

/// An attempt has ended. `was_slow`: it was noticed while it ran that this takes too long.
pub(crate) fn record_end(
    scheduler: &mut Scheduler,
    now: Now,
    name: &str,
    closed: &ClosedAttempt,
    was_slow: bool,
) {
    let Some((number, expect)) = expectation(scheduler, name) else { return };
    let Some(entry) = scheduler.expectations.entries.get(&number) else { return };
    let mut row = entry.row.clone();
    let ran = closed.started_at.map(|at| closed.ended_at.since(at));
    let is_slow = ran.zip(expect.max_duration).is_some_and(|(ran, max)| ran > max);
    let has_succeeded = closed.outcome == Outcome::Succeeded;
    // One member does not stand for all.
    let is_member = scheduler.parent_of(closed.token.job).is_some();
    if has_succeeded && !is_member && expect.success_within.is_some() {
        row.awaited_since = row.awaited_since.max(Some(closed.ended_at.min(now.utc)));
        row.stale_since = None;
    }
    // It is not noticed twice, and its success ends nothing, also if its worker measured a little less than the alarm.
    if !was_slow {
        match is_slow {
            true => row.record_slow(closed.token.job, now.utc),
            false if has_succeeded => row.slow = None,
            false => {}
        }
    }
    put(scheduler, number, row, false);
    arm(scheduler, number);
}

/// All members of a parent have succeeded.
pub(crate) fn parent_succeeded(scheduler: &mut Scheduler, now: Now, name: &str) {
    let Some((number, expect)) = expectation(scheduler, name) else { return };
    let Some(entry) = scheduler.expectations.entries.get(&number) else { return };
    if expect.success_within.is_none() {
        return;
    }
    let mut row = entry.row.clone();
    row.awaited_since = row.awaited_since.max(Some(now.utc));
    row.stale_since = None;
    put(scheduler, number, row, false);
    arm(scheduler, number);
}

/// Sets the alarm of a run that has begun `ago`. After a restart of the server, workers report long runs again: one that is slow already was
/// noticed before if it, or a later job, is the last one that was.
pub(crate) fn arm_slow(scheduler: &mut Scheduler, now: Now, token: Token, ago: Duration) {
    let definition = scheduler.jobs.get(&token.job).and_then(|job| scheduler.definitions.at(job.definition));
    let Some((number, expect)) = definition.and_then(|it| expectation(scheduler, &it.name)) else { return };
    let Some(max) = expect.max_duration else { return };
    let slow = scheduler.expectations.entries.get(&number).and_then(|entry| entry.row.slow);
    let was_noticed = ago >= max && slow.is_some_and(|slow| token.job <= slow.job);
    let at = now.up + max.saturating_sub(ago);
    let run = scheduler.jobs.get_mut(&token.job).and_then(Job::attempt_mut).and_then(Attempt::run_mut);
    let Some(run) = run.filter(|run| run.slow_at.is_none()) else { return };
    if was_noticed {
        run.is_slow = true;
        return;
    }
    run.slow_at = Some(at);
    scheduler.timers.set_uptime(at, UptimeTimer::Slow(token.job, token.fence));
}

/// A run takes longer than expected.
pub(crate) fn become_slow(scheduler: &mut Scheduler, now: Now, job: JobId, fence: Fence) {
    let Some(attempt) = scheduler.jobs.get_mut(&job).and_then(Job::attempt_mut) else { return };
    let is_current = attempt.fence == fence;
    let Some(run) = attempt.run_mut().filter(|run| is_current && run.slow_at.is_some_and(|at| at <= now.up))
    else {
        return;
    };
    (run.slow_at, run.is_slow) = (None, true);
    let Some(definition) = scheduler.jobs.get(&job).and_then(|job| scheduler.definition(job)) else { return };
    let Some((number, expect)) = expectation(scheduler, &definition.name) else { return };
    let Some(entry) = scheduler.expectations.entries.get(&number) else { return };
    if expect.max_duration.is_some() {
        let mut row = entry.row.clone();
        row.record_slow(job, now.utc);
        put(scheduler, number, row, false);
    }
}

fn expectation(scheduler: &Scheduler, name: &str) -> Option<(ExpectationNo, Expect)> {
    let number = scheduler.expectations.find(name)?;
    Some((number, scheduler.expectations.entries.get(&number)?.expect))
}

/// Stores a row that differs.
fn put(scheduler: &mut Scheduler, number: ExpectationNo, row: ExpectationRow, is_new: bool) {
    let Some(entry) = scheduler.expectations.entries.get_mut(&number) else { return };
    if entry.row == row && !is_new {
        return;
    }
    entry.row = row.clone();
    scheduler.expectations.publish(number);
    scheduler.change(Change::Expectation(row));
}

/// Sets the timer to the end of the time without a success, unless that was noticed.
fn arm(scheduler: &mut Scheduler, number: ExpectationNo) {
    let Some(entry) = scheduler.expectations.entries.get(&number) else { return };
    let awaited = entry.row.awaited_since.zip(entry.expect.success_within);
    let at = awaited.map(|(since, within)| since + within).filter(|_| entry.row.stale_since.is_none());
    set_timer(scheduler, number, at);
}

fn set_timer(scheduler: &mut Scheduler, number: ExpectationNo, at: Option<protocol::Timestamp>) {
    let Some(entry) = scheduler.expectations.entries.get_mut(&number) else { return };
    if let Some(before) = core::mem::replace(&mut entry.stale_at, at) {
        scheduler.timers.clear_wall(before, WallTimer::Stale(number));
    }
    if let Some(at) = at {
        scheduler.timers.set_wall(at, WallTimer::Stale(number));
    }
}
