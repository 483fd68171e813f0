//! Checks every invariant of the scheduler. Tests and the simulation call it after each step.

mod unfinished_batch;
mod workers;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use protocol::JobId;

use crate::core::Scheduler;
use crate::explain::obstacles::obstacles;
use crate::explain::pending;
use crate::handlers;
use crate::ids::DefinitionNo;
use crate::job::{Attempt, Job, LiveState};
use crate::limits;
use crate::queue::LaneKey;
use crate::run_on;
use crate::timers::{UptimeTimer, WallTimer};
use unfinished_batch::{hidden_fault, members_fault};

/// Returns a sentence for each violated invariant; empty if all hold. Walks over every job, so it is for
/// tests only.
#[must_use]
pub fn audit(scheduler: &Scheduler) -> Vec<String> {
    let mut faults: Vec<String> = Vec::new();
    faults.extend(scheduler.ready.faults().into_iter().map(ToString::to_string));
    faults.extend(scheduler.fleet.faults().into_iter().map(ToString::to_string));
    faults.extend(limits::audit::faults(scheduler));
    if !scheduler.pauses.is_consistent() {
        faults.push("a pause has an end that is not among the ends".into());
    }
    faults.extend(handlers::unique::faults(scheduler));
    faults.extend(handlers::batch_unique::faults(scheduler));
    faults.extend(run_on::audit::faults(scheduler));
    audit_jobs(scheduler, &mut faults);
    audit_lanes(scheduler, &mut faults);
    for (id, worker) in scheduler.fleet.iter() {
        workers::audit_worker(scheduler, id, worker, &mut faults);
    }
    audit_facts_of_jobs(scheduler, &mut faults);
    audit_definitions(scheduler, &mut faults);
    audit_timers(scheduler, &mut faults);
    audit_batches(scheduler, &mut faults);
    faults
}

/// Each job by itself, and the number of queued ones.
fn audit_jobs(scheduler: &Scheduler, faults: &mut Vec<String>) {
    let mut queued = 0;
    for (id, job) in &scheduler.jobs {
        queued += usize::from(
            matches!(job.live_state, LiveState::Queued(_)) && !scheduler.pending_batches.hides(*id),
        );
        if let Some(fault) = fault_of(scheduler, *id, job) {
            faults.push(format!("job {id}: {fault}"));
        }
    }
    if queued != scheduler.ready.len() {
        faults.push("a lane holds a job that is not queued".into());
    }
}

/// No lane waits that could go on, and each waits for what it says.
fn audit_lanes(scheduler: &Scheduler, faults: &mut Vec<String>) {
    let may_go = |lane: LaneKey| !scheduler.has_more_to_place && !scheduler.ready.is_lane_paused(lane);
    for (lane, _) in scheduler.ready.lanes().filter(|(lane, _)| may_go(*lane)) {
        let is_able = |worker| obstacles(scheduler, worker, lane).next().is_none();
        let is_let = |id| limits::audit::may_start(scheduler, lane, id);
        if let Some((id, _)) = scheduler.fleet.iter().find(|(id, worker)| is_able(worker) && is_let(*id)) {
            faults.push(format!("jobs wait in lane {lane:?}, although nothing keeps worker {id} from them"));
        }
    }
    for (lane, _) in scheduler.ready.lanes().filter(|_| scheduler.fleet.is_grouped()) {
        let (told, found) =
            (pending::why_waiting(scheduler, lane), pending::why_waiting_by_search(scheduler, lane));
        if told != found {
            faults.push(format!("jobs of lane {lane:?} wait for {found:?}, not {told:?}"));
        }
    }
}

/// Tables beside the jobs name only jobs to which their facts belong.
fn audit_facts_of_jobs(scheduler: &Scheduler, faults: &mut Vec<String>) {
    for job in scheduler.unconfirmed.keys() {
        if !scheduler
            .fleet
            .iter()
            .any(|(_, worker)| worker.holdings.unconfirmed.keys().any(|it| it.job == *job))
        {
            faults.push(format!("no worker can confirm the attempts of ended job {job}"));
        }
    }
    for job in scheduler.phases.keys() {
        if scheduler.jobs.get(job).and_then(Job::attempt).is_none() {
            faults.push(format!("a phase is kept for job {job}, which has no attempt"));
        }
    }
}

/// Definitions are counted by the jobs and the unfinished batches that use them, and all are published.
fn audit_definitions(scheduler: &Scheduler, faults: &mut Vec<String>) {
    let mut uses: BTreeMap<DefinitionNo, u64> = BTreeMap::new();
    let of_batches = scheduler.pending_batches.batches().flat_map(|batch| &batch.definitions);
    for number in scheduler.jobs.values().map(|job| &job.definition).chain(of_batches) {
        *uses.entry(*number).or_default() += 1;
    }
    if scheduler
        .definitions
        .counts()
        .any(|(number, count)| uses.get(&number).copied().unwrap_or_default() != count)
    {
        faults.push("a definition has a wrong count of jobs".into());
    }
    if !scheduler.definitions.publishes_all() {
        faults.push("the published definitions differ from the table".into());
    }
}

/// Schedules and expectations have the timers that they seem to have.
fn audit_timers(scheduler: &Scheduler, faults: &mut Vec<String>) {
    for (number, at) in scheduler.schedules.timers() {
        if !scheduler.timers.has_wall(at, WallTimer::Fire(number)) {
            faults.push(format!("schedule {number:?} seems to have a timer, and has none"));
        }
    }
    for (number, entry) in &scheduler.expectations.entries {
        let is_watched =
            entry.stale_at.is_none_or(|at| scheduler.timers.has_wall(at, WallTimer::Stale(*number)));
        let is_awaited = entry.expect.success_within.is_some() && entry.row.stale_since.is_none();
        if !is_watched || entry.stale_at.is_some() != is_awaited {
            faults.push(format!("the expectation of {} is not watched", entry.row.definition));
        }
    }
}

/// Batches count their live members, and unfinished ones have members to come.
fn audit_batches(scheduler: &Scheduler, faults: &mut Vec<String>) {
    for batch in scheduler.batches.iter() {
        let members = (batch.first.0..batch.end().0).filter(|id| scheduler.jobs.contains_key(&JobId(*id)));
        if !scheduler.pending_batches.hides(batch.first) && members.count() != batch.live as usize {
            faults.push(format!("batch {} counts {} members that have not ended", batch.first, batch.live));
        }
    }
    if scheduler.pending_batches.batches().any(|batch| batch.rest.len() == 0) {
        faults.push("a complete batch was not answered".into());
    }
    if scheduler.pending_batches.batches().next().is_none() && !scheduler.pending_batches.demand().is_empty()
    {
        faults.push("limits count members of a large batch, and there is none".into());
    }
    faults.extend(
        scheduler
            .pending_batches
            .in_progress()
            .and_then(|batch| members_fault(scheduler, batch))
            .map(ToString::to_string),
    );
}

/// The first fault of a job: its definition, number, timers, and its place in the queue or on its worker.
fn fault_of(scheduler: &Scheduler, id: JobId, job: &Job) -> Option<&'static str> {
    if scheduler.definitions.at(job.definition).is_none() {
        return Some("its definition is not known");
    }
    if id > scheduler.counters.job {
        return Some("its number was never assigned");
    }
    if let Some(batch) =
        scheduler.pending_batches.in_progress().filter(|_| scheduler.pending_batches.hides(id))
    {
        return hidden_fault(scheduler, batch, id, job);
    }
    if let Some(at) = job.expires_at()
        && !scheduler.timers.has_wall(at, WallTimer::Expiry(id))
        && job.attempt().is_none()
    {
        return Some("it waits for a limited time and has no timer");
    }
    match &job.live_state {
        LiveState::Scheduled
            if !scheduler.timers.has_wall(job.due_at, WallTimer::Due(id))
                && !handlers::attempt_end::waits_for_another(scheduler, id) =>
        {
            Some("scheduled without a timer")
        }
        LiveState::Queued(lane)
            if !scheduler.ready.contains(*lane, job.queue_key(scheduler.config.priority_ageing, id)) =>
        {
            Some("queued but not in its lane")
        }
        LiveState::Queued(lane) if lane.is_paused() != scheduler.paused_batch(id, job).is_some() => {
            Some("it waits among the members of paused batches, or should do so")
        }
        LiveState::Held(attempt) => attempt_fault(scheduler, id, attempt),
        _ => None,
    }
}

/// Its worker lists it, and each of its alarms is set.
fn attempt_fault(scheduler: &Scheduler, id: JobId, attempt: &Attempt) -> Option<&'static str> {
    let is_unset = |at, alarm| !scheduler.timers.has_uptime(at, alarm);
    let (run, fence) = (attempt.run(), attempt.fence);
    let holder = scheduler.fleet.worker(attempt.worker);
    if holder.is_none_or(|worker| !worker.holdings.jobs.contains(&id)) {
        Some("its worker does not list it")
    } else if fence > scheduler.counters.fence {
        Some("its fence was never assigned")
    } else if run
        .and_then(|run| run.overrun_at)
        .is_some_and(|at| is_unset(at, UptimeTimer::Overrun(id, fence)))
    {
        Some("its timeout has no timer")
    } else if run.and_then(|run| run.slow_at).is_some_and(|at| is_unset(at, UptimeTimer::Slow(id, fence))) {
        Some("its expected duration has no timer")
    } else if attempt.loss_at.is_some_and(|at| is_unset(at, UptimeTimer::Loss(id, fence))) {
        Some("its loss has no timer")
    } else if attempt
        .awaited_report()
        .is_some_and(|it| is_unset(it.due_at, UptimeTimer::AwaitedReport(id, fence)))
    {
        Some("the wait for its first report has no timer")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::time::Duration;

    use protocol::{Now, Revision, Timestamp, Uptime, WorkerId};

    use super::*;
    use crate::config::{Config, Counters};
    use crate::definition::Definition;
    use crate::fleet::Worker;
    use crate::fleet::row::{Drain, WorkerRow};
    use crate::ids::Ticket;
    use crate::input::{Input, Submit};
    use crate::new_jobs::{NewJob, StartTime};
    use crate::placement::exclusion::{Excluded, ExclusionBackoff};

    /// A scheduler with one queued job, one scheduled job and one disconnected worker.
    fn scheduler() -> Scheduler {
        let mut scheduler = Scheduler::new(Config::for_tests(), Counters::default());
        let now = Now { utc: Timestamp(0), up: Uptime(0) };
        scheduler.step(now, Input::ReplaceDefinitions(vec![Definition::for_tests(1)]));
        let job = NewJob { revision: Revision(1), ..NewJob::default() };
        let later = NewJob { run_at: Some(StartTime::At(Timestamp(1_000))), ..job.clone() };
        let (jobs, ticket) = (vec![job, later], Ticket(1));
        scheduler.step(
            now,
            Input::Submit(Submit {
                ticket,
                jobs: jobs.into(),
                batch: Some(Default::default()),
                require_worker: false,
                idempotency_key: None,
            }),
        );
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
            cordon: None,
            slots: None,
            drain: None,
            labels: Vec::new(),
            process: None,
            join_token: None,
            granted: Vec::new(),
            revoked_at: None,
        }
    }

    fn after(harm: impl FnOnce(&mut Scheduler)) -> Vec<String> {
        let mut scheduler = scheduler();
        assert_eq!(audit(&scheduler), Vec::<String>::new());
        harm(&mut scheduler);
        audit(&scheduler)
    }

    #[track_caller]
    fn assert_reported(faults: &[String], what: &str) {
        assert!(faults.iter().any(|fault| fault.contains(what)), "{what}: {faults:?}");
    }

    #[test]
    fn inconsistent_jobs_are_reported() {
        assert_reported(&after(|it| it.counters.job = JobId(1)), "job 2: its number was never assigned");
        assert_reported(
            &after(|it| it.timers.clear_wall(Timestamp(1_000), WallTimer::Due(JobId(2)))),
            "job 2: scheduled without a timer",
        );
        let unplaced = after(|it| {
            let job = &it.jobs[&JobId(1)];
            let LiveState::Queued(lane) = job.live_state else { panic!("{job:?}") };
            it.ready.remove(lane, job.queue_key(it.config.priority_ageing, JobId(1)));
        });
        assert_reported(&unplaced, "job 1: queued but not in its lane");
        assert_reported(&unplaced, "a lane holds a job that is not queued");
        assert_reported(
            &after(|it| drop(it.jobs.remove(&JobId(2)))),
            "a definition has a wrong count of jobs",
        );
    }

    #[test]
    fn a_worker_without_its_timer_is_reported() {
        let id = WorkerId(1);
        let after = |harm: fn(&mut Worker)| after(|it| harm(it.fleet.worker_mut(id).expect("it is there")));
        assert_reported(
            &after(|it| it.lease.alarm = None),
            "worker 1: it is reachable and its lease has no end",
        );
        assert_reported(&after(|it| it.lease.alarm = Some(Uptime(7))), "worker 1: its lease has no timer");
        let excluded = after(|it| {
            let backoff = ExclusionBackoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };
            it.health.exclusions.add(Uptime(0), Excluded::Anything, backoff);
        });
        assert_reported(&excluded, "worker 1: the end of its exclusion has no timer");
        let drained = after(|it| {
            it.row.drain = Some(Drain { process: None, deadline: Some(Timestamp(5)) });
            it.holdings.jobs.insert(JobId(1));
        });
        assert_reported(&drained, "worker 1: the end of its drain has no timer");
    }
}
