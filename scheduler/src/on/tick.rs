//! Time has passed: what is due is done, and a large batch gets its next slice. A timer does nothing if what it is for is no longer current.

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{Fence, JobId, Now, Token, Uptime, WorkerId};

use crate::definition::OnLost;
use crate::fleet::Link;
use crate::job::{Job, Standing};
use crate::on::{cancel, claim, close, drain, form, inventory};
use crate::scheduler::Scheduler;
use crate::step::{Change, CloseReason, ClosedAttempt, Effect, Note};
use crate::timers::{Alarm, Date};

/// How many timers one step fires: after a long sleep the rest waits for the next step, so that reports are not held up.
const TIMERS_PER_STEP: usize = 500;

pub(crate) fn tick(it: &mut Scheduler, now: Now) {
    for _ in 0..TIMERS_PER_STEP {
        match it.timers.take_date(now) {
            Some(Date::Due(job)) => due(it, job),
            Some(Date::DrainEnd(worker)) => drain::due(it, now, worker),
            None => break,
        }
    }
    for _ in 0..TIMERS_PER_STEP {
        match it.timers.take_alarm(now) {
            Some(Alarm::LeaseEnd(worker)) => lease_end(it, now, worker),
            Some(Alarm::Loss(job, fence)) => lose(it, now, job, fence),
            Some(Alarm::Overrun(job, fence)) => overrun(it, now, job, fence),
            Some(Alarm::Offer(worker)) => offer_again(it, now, worker),
            Some(Alarm::Copies(worker)) => claim::copies_are_gone(it, worker),
            // The step itself looks at backlogs.
            Some(Alarm::Recall) => {}
            None => break,
        }
    }
    form::slice(it, now);
    give_back_memory(it);
}

/// What a long queue made large is given back once the queue is gone.
fn give_back_memory(it: &mut Scheduler) {
    let (used, room) = (it.jobs.len(), it.jobs.capacity());
    if room > ROOM_KEPT && used < room / 8 {
        it.jobs.shrink_to((used * 2).max(ROOM_KEPT));
    }
}

/// So many jobs' room is kept whatever happens: a few megabytes.
const ROOM_KEPT: usize = 65_536;

fn due(it: &mut Scheduler, id: JobId) {
    if it.jobs.get(&id).is_some_and(|job| matches!(job.standing, Standing::Scheduled)) {
        close::queue(it, id);
        it.change(Change::Due { job: id });
    }
}

/// A lease has run out, unless the worker was heard of since the alarm was set.
fn lease_end(it: &mut Scheduler, now: Now, id: WorkerId) {
    let lease = it.config.intervals.lease;
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    worker.lease_end = None;
    if worker.heard + lease > now.up {
        it.watch_lease(id);
        return;
    }
    worker.unreachable = true;
    worker.since = now.utc;
    let heard = worker.heard;
    let session = worker.link.session();
    let held: alloc::vec::Vec<JobId> = worker.held.iter().copied().collect();
    if let Some(session) = session {
        it.effect(Effect::Close(session, CloseReason::Silent));
    }
    it.fleet.close(id);
    it.changed = true;
    for job in held {
        let Some(definition) = it.jobs.get(&job).and_then(|job| it.definition(job)) else {
            continue;
        };
        let Some(attempt) = it.jobs.get_mut(&job).and_then(Job::attempt_mut) else {
            continue;
        };
        let token = attempt.token(job);
        if !attempt.may_run {
            close::close(it, now, job, unasked(now, token));
            continue;
        }
        if definition.loss.on_lost != OnLost::Wait || attempt.stopping == Some(StopCause::Cancel) {
            give_up_at(it, job, (heard + definition.patience()).max(now.up));
        }
        it.change(Change::Noted { job, at: now.utc, note: Note::Unreachable { token, worker: id } });
    }
}

/// The end of an attempt that its worker would have asked to start, and has not: whatever it finds out now, it will not be allowed.
fn unasked(now: Now, token: Token) -> ClosedAttempt {
    let message = "given back: its worker fell silent before it asked to start it";
    ClosedAttempt { outcome: Outcome::Released, ..inventory::gone(now, token, None, message) }
}

/// A silent worker's attempt is given up. It may still run there: whatever it says later is not believed.
fn lose(it: &mut Scheduler, now: Now, id: JobId, fence: Fence) {
    let Some(attempt) = it.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    if attempt.fence != fence || attempt.loss_at.is_none_or(|at| at > now.up) {
        return;
    }
    attempt.loss_at = None;
    let (token, started_at) = (attempt.token(id), attempt.started_at);
    match silent_until(it, id).filter(|at| *at > now.up) {
        Some(at) => give_up_at(it, id, at),
        None => {
            let gone = inventory::gone(now, token, started_at, "its worker has not been heard of");
            close::lose(it, now, id, gone);
        }
    }
}

fn give_up_at(it: &mut Scheduler, id: JobId, at: Uptime) {
    let Some(attempt) = it.jobs.get_mut(&id).and_then(Job::attempt_mut) else {
        return;
    };
    let alarm = Alarm::Loss(id, attempt.fence);
    if let Some(old) = attempt.loss_at.replace(at) {
        it.timers.clear_alarm(old, alarm);
    }
    it.timers.set_alarm(at, alarm);
}

/// When an attempt's worker will have been silent for long enough. It may have said hello since the alarm was set: then it counts its own
/// time from there, too, whether or not it has told what it has, and whether or not its connection has held.
fn silent_until(it: &Scheduler, id: JobId) -> Option<Uptime> {
    let job = it.jobs.get(&id)?;
    let worker = it.fleet.worker(job.attempt()?.worker)?;
    Some(worker.heard + it.definition(job)?.patience())
}

/// The worker should have stopped it long ago.
fn overrun(it: &mut Scheduler, now: Now, id: JobId, fence: Fence) {
    if let Some(attempt) = it.jobs.get_mut(&id).and_then(Job::attempt_mut)
        && attempt.fence == fence
    {
        attempt.overrun_at = None;
    }
    cancel::stop(it, now, id, fence, StopCause::Timeout, "its timeout".into());
}

fn offer_again(it: &mut Scheduler, now: Now, id: WorkerId) {
    let Some(worker) = it.fleet.worker_mut(id) else {
        return;
    };
    worker.exclusions.expire(now.up);
    if matches!(worker.link, Link::Ready(_)) {
        it.fleet.refresh(id);
        it.fleet.note_growth();
    }
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;
    use crate::config::{Config, Counters};
    use crate::input::Input;

    #[test]
    fn what_is_overdue_fires_a_part_at_a_time_and_the_rest_is_due_at_once() {
        let mut it = Scheduler::new(Config::for_tests(), Counters::default());
        for job in 1..=1_200 {
            it.timers.set_date(Timestamp(job), Date::Due(JobId(job.cast_unsigned())));
        }
        let now = Now { utc: Timestamp(5_000), up: Uptime(0) };
        let rest: [_; 3] = core::array::from_fn(|_| {
            it.step(now, Input::Tick);
            it.timers.wake_at().utc
        });
        assert_eq!(rest, [Some(Timestamp(501)), Some(Timestamp(1_001)), None]);
    }
}
