//! Every invariant of the scheduler, checked from the outside of its verbs: called after each step in tests and in the simulation.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use protocol::{JobId, WorkerId};

use crate::definitions::DefinitionNo;
use crate::explain;
use crate::fleet::{Link, Worker};
use crate::forming::UnderWay;
use crate::job::{Job, Standing};
use crate::on;
use crate::scheduler::Scheduler;
use crate::timers::{Alarm, Date};

/// What is wrong, in words; empty if all is well. Looks at every job: for tests only.
#[must_use]
pub fn audit(it: &Scheduler) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    faults.extend(it.ready.faults().into_iter().map(ToString::to_string));
    faults.extend(it.fleet.faults().into_iter().map(ToString::to_string));
    let mut queued = 0;
    let mut uses: BTreeMap<DefinitionNo, u64> = BTreeMap::new();
    for (id, job) in &it.jobs {
        *uses.entry(job.definition).or_default() += 1;
        queued += usize::from(matches!(job.standing, Standing::Queued(_)) && !it.forming.hides(*id));
        if let Some(fault) = fault_of(it, *id, job) {
            faults.push(format!("job {id}: {fault}"));
        }
    }
    if queued != it.ready.lanes().map(|(_, waiting)| waiting).sum::<usize>() {
        faults.push("somebody waits in a lane who is not queued".into());
    }
    for (lane, _) in it.ready.lanes() {
        let Some(definition) = it.definitions.at(lane.definition()) else { continue };
        let is_able = |worker| explain::obstacles(worker, definition, lane.pinned_to()).next().is_none();
        if let Some((id, _)) = it.fleet.iter().find(|(_, worker)| is_able(worker)) {
            faults.push(format!("jobs wait in lane {lane:?}, although nothing keeps worker {id} from them"));
        }
    }
    for (id, worker) in it.fleet.iter() {
        faults.extend(unwatched(it, id, worker).map(|fault| format!("worker {id}: {fault}")));
        for job in &worker.held {
            let holder = it.jobs.get(job).and_then(Job::attempt).map(|attempt| attempt.worker);
            if holder != Some(id) {
                faults.push(format!("worker {id} seems to hold job {job}, which says {holder:?}"));
            }
        }
        for token in worker.unmanaged.keys() {
            if it.jobs.get(&token.job).and_then(Job::attempt).is_some_and(|attempt| attempt.is(*token, id)) {
                faults.push(format!("worker {id} has {token}, which counts as a stranger and is not"));
            }
        }
        let heartbeat = worker.heartbeat.unwrap_or(it.config.intervals.heartbeat);
        if matches!(worker.link, Link::Ready(_)) && on::wanted_of(it, id).is_some_and(|it| it < heartbeat) {
            faults.push(format!("worker {id} is heard of less often than what it has wants"));
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
    for number in it.forming.batches().flat_map(|batch| &batch.definitions) {
        *uses.entry(*number).or_default() += 1;
    }
    if it.definitions.counts().any(|(number, count)| uses.get(&number).copied().unwrap_or_default() != count)
    {
        faults.push("a definition is kept for nobody, or may be dropped too early".into());
    }
    if !it.definitions.publishes_all() {
        faults.push("what is known of definitions is not what the snapshot says".into());
    }
    if it.forming.batches().any(|batch| batch.rest.len() == 0) {
        faults.push("a batch is made, and was not answered".into());
    }
    faults.extend(it.forming.under_way().and_then(|batch| members_fault(it, batch)).map(ToString::to_string));
    faults
}

/// Something that is to happen to a worker, and for which no timer is set.
fn unwatched(it: &Scheduler, id: WorkerId, worker: &Worker) -> Option<&'static str> {
    let watched = |at, alarm| it.timers.has_alarm(at, alarm);
    if worker.claims.until.is_some_and(|at| !watched(at, Alarm::Copies(id))) {
        Some("nobody notices when its copies are gone")
    } else if worker.lease_end.is_some_and(|at| !watched(at, Alarm::LeaseEnd(id))) {
        Some("its lease is not watched")
    } else if worker.lease_end.is_none() && !worker.unreachable {
        Some("nobody notices when it falls silent")
    } else if worker.exclusions.ends().any(|at| !watched(at, Alarm::Offer(id))) {
        Some("it is never offered again what it could not take")
    } else if !drain_ends(it, id, worker) {
        Some("nobody notices the end of its drain")
    } else {
        None
    }
}

/// Whether a drain's deadline is watched. Once it has passed, all that the worker still has is being stopped.
fn drain_ends(it: &Scheduler, id: WorkerId, worker: &Worker) -> bool {
    let attempt = |job| it.jobs.get(job).and_then(Job::attempt);
    let deadline = worker.row.drain.and_then(|drain| drain.deadline);
    deadline.is_none_or(|at| {
        it.timers.has_date(at, Date::DrainEnd(id))
            || worker.held.iter().all(|job| attempt(job).is_some_and(|attempt| attempt.stopping.is_some()))
    })
}

fn fault_of(it: &Scheduler, id: JobId, job: &Job) -> Option<&'static str> {
    if it.definitions.at(job.definition).is_none() {
        return Some("its definition is gone");
    }
    if id > it.last.job {
        return Some("its number was never given");
    }
    if let Some(batch) = it.forming.under_way().filter(|_| it.forming.hides(id)) {
        return hidden_fault(it, batch, id, job);
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

/// A member of a batch that is not made yet waits with its batch, and nowhere else.
fn hidden_fault(it: &Scheduler, batch: &UnderWay, id: JobId, job: &Job) -> Option<&'static str> {
    let (with_batch, elsewhere) = match &job.standing {
        Standing::Queued(lane) => {
            let place = job.place(id);
            (batch.lanes.get(lane).is_some_and(|run| run.contains(&place)), it.ready.contains(*lane, place))
        }
        Standing::Scheduled => {
            (batch.dates.contains(&(job.due_at, id)), it.timers.has_date(job.due_at, Date::Due(id)))
        }
        Standing::Held(_) | Standing::Quarantined => (false, true),
    };
    match (with_batch, elsewhere) {
        (_, true) => Some("it takes part before its batch is made"),
        (false, false) => Some("its batch does not know it"),
        (true, false) => None,
    }
}

fn members_fault(it: &Scheduler, batch: &UnderWay) -> Option<&'static str> {
    let made = batch.made();
    if batch.last() > it.last.job {
        return Some("the numbers of a batch may be given again");
    }
    let is_there = |id: u64| it.jobs.contains_key(&JobId(id));
    let complete = it.forming.hidden() as u64 == made.end - made.start && made.clone().all(is_there);
    (!complete).then_some("not all members of a batch are there that were made")
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;
    use core::time::Duration;

    use protocol::container::ContainerSpec;
    use protocol::{Now, Revision, Timestamp, Uptime};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::{Definition, LossPolicy, RetryPolicy};
    use crate::exclusion::{Excluded, Sentence};
    use crate::input::{Input, NewJob, Submit, Ticket};
    use crate::step::{Drain, WorkerRow};

    /// One job waits, another is due later, and a worker is away.
    fn scheduler() -> Scheduler {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        let now = Now { utc: Timestamp(0), up: Uptime(0) };
        let definition = Definition {
            name: "job".into(),
            revision: Revision(1),
            enabled: true,
            priority: 0,
            timeout: None,
            retry: RetryPolicy::default(),
            loss: LossPolicy::default(),
            container: ContainerSpec::default(),
        };
        scheduler.step(now, Input::Define(vec![Arc::new(definition)]));
        let job = NewJob { revision: Revision(1), ..NewJob::default() };
        let later = NewJob { run_at: Some(Timestamp(1_000)), ..job.clone() };
        let (jobs, ticket) = (vec![job, later], Ticket(1));
        scheduler
            .step(now, Input::Submit(Submit { ticket, jobs, batch: true, require_worker: false, key: None }));
        scheduler.restore_worker(now, worker());
        scheduler
    }

    fn worker() -> WorkerRow {
        WorkerRow {
            worker: WorkerId(1),
            name: "w1".into(),
            secret_hash: [0; 32],
            joined_at: Timestamp(0),
            seen_at: Timestamp(0),
            cordoned: true,
            slots: None,
            drain: None,
            labels: Vec::new(),
            process: None,
        }
    }

    fn after(harm: impl FnOnce(&mut Scheduler)) -> Vec<String> {
        let mut scheduler = scheduler();
        assert_eq!(audit(&scheduler), Vec::<String>::new());
        harm(&mut scheduler);
        audit(&scheduler)
    }

    #[track_caller]
    fn told(faults: &[String], what: &str) {
        assert!(faults.iter().any(|fault| fault.contains(what)), "{what}: {faults:?}");
    }

    #[test]
    fn what_does_not_fit_together_is_told_of() {
        told(&after(|it| it.last.job = JobId(1)), "job 2: its number was never given");
        told(
            &after(|it| it.timers.clear_date(Timestamp(1_000), Date::Due(JobId(2)))),
            "job 2: scheduled without a timer",
        );
        let unplaced = after(|it| {
            let job = &it.jobs[&JobId(1)];
            let Standing::Queued(lane) = job.standing else { panic!("{job:?}") };
            it.ready.remove(lane, job.place(JobId(1)));
        });
        told(&unplaced, "job 1: queued without a place in its lane");
        told(&unplaced, "somebody waits in a lane who is not queued");
        told(&after(|it| drop(it.jobs.remove(&JobId(2)))), "a definition is kept for nobody");
    }

    #[test]
    fn what_is_to_happen_to_a_worker_has_its_timer() {
        let id = WorkerId(1);
        let after = |harm: fn(&mut Worker)| after(|it| harm(it.fleet.worker_mut(id).expect("it is there")));
        told(&after(|it| it.lease_end = None), "worker 1: nobody notices when it falls silent");
        told(&after(|it| it.lease_end = Some(Uptime(7))), "worker 1: its lease is not watched");
        let excluded = after(|it| {
            let sentence = Sentence { first: Duration::from_secs(1), max: Duration::from_secs(60) };
            it.exclusions.add(Uptime(0), Excluded::Anything, sentence);
        });
        told(&excluded, "worker 1: it is never offered again what it could not take");
        let drained = after(|it| {
            it.row.drain = Some(Drain { process: None, deadline: Some(Timestamp(5)) });
            it.held.insert(JobId(1));
        });
        told(&drained, "worker 1: nobody notices the end of its drain");
    }
}
