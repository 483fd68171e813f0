//! Every invariant of the scheduler, checked from the outside of its verbs: called after each step in tests and in the simulation.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use protocol::JobId;

use crate::job::{Job, Standing};
use crate::scheduler::Scheduler;
use crate::timers::{Alarm, Date};

/// What is wrong, in words; empty if all is well. Looks at every job: for tests only.
#[must_use]
pub fn audit(it: &Scheduler) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    faults.extend(it.ready.faults().into_iter().map(ToString::to_string));
    faults.extend(it.fleet.faults().into_iter().map(ToString::to_string));
    let mut queued = 0;
    for (id, job) in &it.jobs {
        queued += usize::from(matches!(job.standing, Standing::Queued(_)));
        if let Some(fault) = fault_of(it, *id, job) {
            faults.push(format!("job {id}: {fault}"));
        }
    }
    if queued != it.ready.lanes().map(|(_, waiting)| waiting).sum::<usize>() {
        faults.push("somebody waits in a lane who is not queued".into());
    }
    for (id, worker) in it.fleet.iter() {
        for job in &worker.held {
            let holder = it.jobs.get(job).and_then(Job::attempt).map(|attempt| attempt.worker);
            if holder != Some(id) {
                faults.push(format!("worker {id} seems to hold job {job}, which says {holder:?}"));
            }
        }
        for place in &worker.prefetched {
            if !it.jobs.get(&place.job()).and_then(Job::attempt).is_some_and(|attempt| attempt.prefetched) {
                faults.push(format!("worker {id}: job {} is not in its backlog", place.job()));
            }
        }
    }
    for job in it.phases.keys() {
        if it.jobs.get(job).and_then(Job::attempt).is_none() {
            faults.push(format!("a phase is kept for job {job}, which has no attempt"));
        }
    }
    faults
}

fn fault_of(it: &Scheduler, id: JobId, job: &Job) -> Option<&'static str> {
    if it.definitions.at(job.definition).is_none() {
        return Some("its definition is gone");
    }
    if id > it.last.job {
        return Some("its number was never given");
    }
    match &job.standing {
        Standing::Scheduled if !it.timers.has_date(job.due_at, Date::Due(id)) => {
            Some("scheduled without a timer")
        }
        Standing::Queued(lane) if !it.ready.contains(*lane, job.place(id)) => {
            Some("queued without a place in its lane")
        }
        Standing::Held(attempt) => {
            let watched = |at, alarm| it.timers.has_alarm(at, alarm);
            let held = it.fleet.worker(attempt.worker).is_some_and(|worker| worker.held.contains(&id));
            if !held {
                Some("its worker does not know that it holds it")
            } else if attempt.fence > it.last.fence {
                Some("its fence was never given")
            } else if attempt.overrun_at.is_some_and(|at| !watched(at, Alarm::Overrun(id, attempt.fence))) {
                Some("its timeout is not watched")
            } else if attempt.loss_at.is_some_and(|at| !watched(at, Alarm::Loss(id, attempt.fence))) {
                Some("its loss is not watched")
            } else {
                None
            }
        }
        _ => None,
    }
}
