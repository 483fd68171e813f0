//! Fires the timers that are due and creates the next slice of a large batch. A timer without a current
//! subject does nothing.

use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{JobId, Now, Token, WorkerId};

use crate::core::Scheduler;
use crate::handlers::{
    attempt_end, cordon, drain, due, expect, expire, fire, first_report, forget, loss, overrun,
    pending_batch, suspension, worker_identity,
};
use crate::job::{Job, StartState};
use crate::step::{Change, CloseReason, ClosedAttempt, Note};
use crate::table::shrink;
use crate::timers::{UptimeTimer, WallTimer};

/// Timers that one step fires at most. After a long pause the rest fires in later steps, so that reports are
/// not delayed.
const TIMERS_PER_STEP: usize = 500;

pub(crate) fn tick(scheduler: &mut Scheduler, now: Now) {
    fire_overdue_wall(scheduler, now);
    let mut left = TIMERS_PER_STEP;
    while left > 0 {
        let overdue = scheduler.overdue.map(|overdue| overdue.until);
        let Some(date) = (match overdue {
            Some(until) => scheduler.timers.take_wall_after(until, now),
            None => scheduler.timers.take_wall(now),
        }) else {
            break;
        };
        left = left.saturating_sub(1 + fire_wall(scheduler, now, date));
    }
    for _ in 0..TIMERS_PER_STEP {
        match scheduler.timers.take_uptime(now) {
            Some(UptimeTimer::LeaseEnd(worker)) => expire_lease(scheduler, now, worker),
            Some(UptimeTimer::Loss(job, fence)) => loss::lose(scheduler, now, job, fence),
            Some(UptimeTimer::Overrun(job, fence)) => overrun::stop(scheduler, now, job, fence),
            Some(UptimeTimer::Slow(job, fence)) => expect::become_slow(scheduler, now, job, fence),
            Some(UptimeTimer::AwaitedReport(job, fence)) => {
                first_report::ask_again(scheduler, now, job, fence)
            }
            Some(UptimeTimer::ExclusionEnd(worker)) => end_exclusions(scheduler, now, worker),
            Some(UptimeTimer::ClonesGone(worker)) => worker_identity::expire_clones(scheduler, worker),
            Some(UptimeTimer::WorkerExpiry(worker)) => forget::confirm_expiry(scheduler, now, worker),
            // The step itself looks for attempts to recall and workers to set aside, and makes members.
            Some(UptimeTimer::Recall | UptimeTimer::SetAside | UptimeTimer::MembersDue) => {}
            None => break,
        }
    }
    pending_batch::create_slice(scheduler, now);
    shrink_tables(scheduler);
}

/// Fires timers that were overdue at the start of the server, at most 500 a second, so that all jobs of a long downtime do not become due in
/// one moment. Later timers do not wait for them.
fn fire_overdue_wall(scheduler: &mut Scheduler, now: Now) {
    let Some(overdue) = &mut scheduler.overdue else { return };
    if overdue.next > now.up {
        return;
    }
    let until = overdue.until;
    overdue.next = now.up + OVERDUE_EVERY;
    let mut left = TIMERS_PER_STEP;
    while left > 0 {
        let first = scheduler.timers.wake_at().utc;
        let Some(date) = first.filter(|at| *at <= until).and_then(|_| scheduler.timers.take_wall(now)) else {
            scheduler.overdue = None;
            return;
        };
        left = left.saturating_sub(1 + fire_wall(scheduler, now, date));
    }
    if scheduler.timers.wake_at().utc.is_none_or(|at| at > until) {
        scheduler.overdue = None;
    }
}

/// Interval between portions of overdue timers.
const OVERDUE_EVERY: Duration = Duration::from_secs(1);

/// Fires one wall-clock timer. Returns how many jobs it made.
fn fire_wall(scheduler: &mut Scheduler, now: Now, timer: WallTimer) -> usize {
    match timer {
        WallTimer::Due(job) => due::start_due_job(scheduler, now, job),
        WallTimer::Expiry(job) => expire::expire(scheduler, now, job),
        WallTimer::CordonEnd(worker) => cordon::end_at_time(scheduler, now, worker),
        WallTimer::DrainEnd(worker) => drain::stop_at_deadline(scheduler, now, worker),
        WallTimer::WorkerExpiry(worker) => forget::expire_worker(scheduler, now, worker),
        WallTimer::Stale(expectation) => expect::become_stale(scheduler, now, expectation),
        WallTimer::Fire(schedule) => return fire::fire(scheduler, now, schedule),
    }
    0
}

/// Returns memory after a long queue has emptied.
fn shrink_tables(scheduler: &mut Scheduler) {
    shrink(&mut scheduler.jobs);
    scheduler.ready.shrink_tables();
    scheduler.limits.shrink_tables();
}

/// Expires a lease, unless the worker was heard since the alarm was set.
fn expire_lease(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let lease = scheduler.config.intervals.lease;
    let is_stalled = suspension::is_stalled(scheduler, now);
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    worker.lease.alarm = None;
    if is_stalled {
        worker.lease.renew(now.up);
    }
    if worker.lease.contact + lease > now.up {
        scheduler.arm_lease(id);
        return;
    }
    if worker.lease.last_heard + lease <= now.up {
        scheduler.close_session(now, id, CloseReason::Silent);
    }
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    if core::mem::replace(&mut worker.lease.is_expired, true) {
        scheduler.arm_lease(id);
        return;
    }
    worker.since = now.utc;
    let contact = worker.lease.contact;
    let held: alloc::vec::Vec<JobId> = worker.holdings.jobs.iter().copied().collect();
    scheduler.arm_lease(id);
    scheduler.changed = true;
    for job in held {
        let Some(definition) = scheduler.jobs.get(&job).and_then(|job| scheduler.definition(job)) else {
            continue;
        };
        let Some(attempt) = scheduler.jobs.get_mut(&job).and_then(Job::attempt_mut) else {
            continue;
        };
        let token = attempt.token(job);
        if attempt.start == StartState::MustAsk {
            attempt_end::close(scheduler, now, job, never_started(now, token));
            continue;
        }
        let is_cancelled = attempt.stopping == Some(StopCause::Cancel);
        let is_noted = core::mem::replace(&mut attempt.noted_unreachable, true);
        if let Some(after) = definition.given_up_after(is_cancelled) {
            loss::arm(scheduler, job, (contact + after).max(now.up));
        }
        // The lease was renewed by a suspension of the server, and the worker has not come back.
        if is_noted {
            continue;
        }
        scheduler.change(Change::Noted { job, at: now.utc, note: Note::Unreachable { token, worker: id } });
    }
}

/// The end of an attempt whose worker had not asked to start it. A later request to start it is denied.
fn never_started(now: Now, token: Token) -> ClosedAttempt {
    let message = "given back: its worker fell silent before it asked to start it";
    ClosedAttempt { outcome: Outcome::Released, ..ClosedAttempt::lost(now, token, None, message) }
}

fn end_exclusions(scheduler: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = scheduler.fleet.worker_mut(id) else {
        return;
    };
    worker.health.exclusions.expire(now.up);
    if worker.link.is_ready() {
        scheduler.fleet.refresh(id);
        scheduler.fleet.mark_capacity_grown(id);
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::core::Overdue;
    use crate::input::Input;
    use crate::timers::WakeAt;

    #[test]
    fn timers_overdue_at_a_start_fire_500_a_second_and_hold_up_no_later_one() {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        for job in 1..=1_200 {
            scheduler.timers.set_wall(Timestamp(job), WallTimer::Due(JobId(job.cast_unsigned())));
        }
        scheduler.timers.set_wall(Timestamp(6_000), WallTimer::Due(JobId(2_000)));
        scheduler.overdue = Some(Overdue { until: Timestamp(5_000), next: Uptime(0) });
        let at = |millis: i64| Now {
            utc: Timestamp(5_000 + millis),
            up: Uptime(millis.cast_unsigned() * 1_000_000),
        };
        scheduler.step(at(0), Input::Tick);
        scheduler.step(at(10), Input::Tick);
        assert_eq!(scheduler.timers.wake_at().utc, Some(Timestamp(501)), "one portion");
        assert_eq!(scheduler.wake_at(), WakeAt { utc: Some(Timestamp(6_000)), up: Some(at(1_000).up) });
        scheduler.step(at(1_000), Input::Tick);
        assert_eq!(scheduler.timers.wake_at().utc, Some(Timestamp(1_001)), "the second portion");
        assert!(
            !scheduler.timers.has_wall(Timestamp(6_000), WallTimer::Due(JobId(2_000))),
            "a later one is not held up"
        );
        scheduler.step(at(2_000), Input::Tick);
        assert_eq!(scheduler.timers.wake_at().utc, None);
    }

    #[test]
    fn overdue_timers_fire_in_portions_and_the_rest_is_due_at_once() {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        for job in 1..=1_200 {
            scheduler.timers.set_wall(Timestamp(job), WallTimer::Due(JobId(job.cast_unsigned())));
        }
        let now = Now { utc: Timestamp(5_000), up: Uptime(0) };
        let rest: [_; 3] = core::array::from_fn(|_| {
            scheduler.step(now, Input::Tick);
            scheduler.timers.wake_at().utc
        });
        assert_eq!(rest, [Some(Timestamp(501)), Some(Timestamp(1_001)), None]);
    }
}
