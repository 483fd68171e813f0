//! A start after a kill goes on with ends that were not all passed on. It knows which ended jobs were skipped, so those that wait for them are
//! skipped as well, and how a batch ended.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::report::Availability;
use world::protocol::{self, JobId};
use world::scheduler::batches::BatchOptions;
use world::scheduler::dependencies::{Dependency, Predecessor, PredecessorId, RequiredEnd, SKIPPED};
use world::scheduler::new_jobs::NewJob;
use world::scheduler::step::Change;
use world::{World, definition};

/// More than one step passes on.
const FAN_OUT: usize = 600;

#[test]
fn dependents_of_a_skipped_job_are_skipped_after_a_kill() {
    let mut world = World::new(1, 1_000);
    world.define(definition("resize"));
    world.hello("w1", 1, 0, None);
    world.inventory("w1", Vec::new(), Availability::Available);
    let revision = world.definitions["resize"].revision;
    let job = |after: Option<(u32, RequiredEnd)>| {
        let after = after.map(|(member, requires)| Dependency { on: Predecessor::Member(member), requires });
        NewJob { revision, after: after.into_iter().collect(), ..NewJob::default() }
    };
    let mut jobs = vec![job(None), job(Some((0, RequiredEnd::Failure)))];
    jobs.extend((0..FAN_OUT).map(|_| job(Some((1, RequiredEnd::Success)))));
    world.submit_all(jobs, None, false);
    world.pass(Duration::from_secs(1));
    let (token, _) = world.held.values().next().expect("it is assigned").clone();
    world.success("w1", token, None);
    let skips_second = |change: &Change| matches!(change, Change::DependenciesDropped { job: JobId(2), .. });
    let second = world.steps.iter().position(|(_, step)| step.changes.iter().any(skips_second));
    world.steps.truncate(second.expect("job 2 is skipped") + 1);
    let before = reasons(&world).len();
    assert!(before < FAN_OUT, "the kill comes between two portions");
    world.restart_server(1_000, Duration::ZERO, Duration::ZERO, false);
    world.pass(Duration::from_secs(1));
    let reasons = reasons(&world);
    assert_eq!(reasons.len(), FAN_OUT + 1);
    assert!(reasons.iter().all(|reason| reason.starts_with(SKIPPED)), "{:?}", reasons.last());
}

#[test]
fn dependents_of_a_batch_become_due_once_over_a_kill() {
    let mut world = World::new(1, 1_000);
    world.define(definition("resize"));
    world.submit_array("resize", 2, BatchOptions::default());
    let on = Predecessor::Live(PredecessorId::Batch(JobId(1)));
    let after = vec![Dependency { on, requires: RequiredEnd::NoSuccess }];
    world.submit("resize", FAN_OUT, NewJob { after, ..NewJob::default() }, None, false);
    world.pass(Duration::from_secs(1));
    world.cancel(JobId(1));
    world.cancel(JobId(2));
    let ends = |change: &Change| matches!(change, Change::BatchEnded { first: JobId(1), .. });
    let end = world.steps.iter().position(|(_, step)| step.changes.iter().any(ends));
    world.steps.truncate(end.expect("the batch ends") + 1);
    let before = due(&world);
    assert!(before < FAN_OUT, "the kill comes between two portions, or before the first");
    world.restart_server(1_000, Duration::ZERO, Duration::ZERO, false);
    world.pass(Duration::from_secs(1));
    assert_eq!(due(&world), FAN_OUT);
    world.restart_server(1_000, Duration::ZERO, Duration::ZERO, false);
    world.pass(Duration::from_secs(1));
    assert_eq!(due(&world), FAN_OUT, "a further start changes nothing");
}

/// The number of jobs that became due; none did so twice.
fn due(world: &World) -> usize {
    let changes = world.steps.iter().flat_map(|(_, step)| &step.changes);
    let jobs = changes.filter_map(|change| match change {
        Change::Due { job, .. } => Some(*job),
        _ => None,
    });
    let jobs: Vec<JobId> = jobs.collect();
    assert_eq!(jobs.iter().collect::<BTreeSet<_>>().len(), jobs.len());
    jobs.len()
}

/// The reasons of all jobs but the first that have ended.
fn reasons(world: &World) -> Vec<&str> {
    let changes = world.steps.iter().flat_map(|(_, step)| &step.changes);
    let ends = changes.filter_map(|change| match change {
        Change::Ended(ended) if ended.job.0 > 1 => Some(ended.reason.as_str()),
        _ => None,
    });
    ends.collect()
}
