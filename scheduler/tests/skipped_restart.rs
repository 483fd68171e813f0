//! A start after a kill goes on with ends that were not all passed on, and with the cancel of a batch. It knows which ended jobs were skipped, so
//! those that wait for them are skipped as well, and how a batch ended.

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

/// A cancelled batch whose members take several steps.
fn cancel_large_batch(world: &mut World) {
    world.define(definition("resize"));
    world.hello("w1", 4, 0, None);
    world.inventory("w1", Vec::new(), Availability::Available);
    world.submit_array("resize", CANCELLED, BatchOptions::default());
    world.cancel_batch(JobId(1), &["ann"]);
}

/// More than three steps cancel.
const CANCELLED: u32 = 2_000;

/// The ends of jobs with this reason, and the assignments, step by step.
fn cancels_and_assignments(world: &World) -> Vec<(usize, usize)> {
    let is_cancel = |change: &&Change| matches!(change, Change::Ended(it) if it.reason == "cancelled by ann");
    let is_assigned = |change: &&Change| matches!(change, Change::Assigned(_));
    let of = |changes: &[Change]| {
        (changes.iter().filter(is_cancel).count(), changes.iter().filter(is_assigned).count())
    };
    world.steps.iter().map(|(_, step)| of(&step.changes)).collect()
}

#[test]
fn a_cancelled_batch_ends_in_slices_and_nothing_of_it_starts() {
    let mut world = World::new(1, 10_000);
    cancel_large_batch(&mut world);
    let cancel = world.steps.len() - 1;
    world.pass(Duration::from_secs(1));
    let ends = cancels_and_assignments(&world);
    assert!(ends.iter().all(|(cancelled, _)| *cancelled <= 1_000), "{ends:?}");
    assert_eq!(ends[cancel..].iter().map(|(_, assigned)| assigned).sum::<usize>(), 0);
    let on_worker = 4;
    assert_eq!(ends.iter().map(|(cancelled, _)| cancelled).sum::<usize>(), CANCELLED as usize - on_worker);
}

#[test]
fn a_worker_that_comes_while_a_batch_is_being_cancelled_gets_nothing_of_it() {
    let mut world = World::new(1, 10_000);
    cancel_large_batch(&mut world);
    let cancel = world.steps.len();
    assert!(world.scheduler.live_jobs() > 4, "members are left");
    world.hello("w2", 1_000, 1_000, None);
    world.inventory("w2", Vec::new(), Availability::Available);
    world.pass(Duration::from_secs(1));
    let ends = cancels_and_assignments(&world);
    assert_eq!(ends[cancel..].iter().map(|(_, assigned)| assigned).sum::<usize>(), 0);
    assert_eq!(world.scheduler.live_jobs(), 4, "those whose containers are being stopped");
}

#[test]
fn a_start_goes_on_with_the_cancel_of_a_batch() {
    let mut world = World::new(1, 10_000);
    cancel_large_batch(&mut world);
    let before: usize = cancels_and_assignments(&world).iter().map(|(cancelled, _)| cancelled).sum();
    assert!(before < CANCELLED as usize - 4, "the kill comes between two slices");
    world.restart_server(10_000, Duration::ZERO, Duration::ZERO, false);
    let start = world.steps.len();
    world.hello("w2", 1_000, 0, None);
    world.inventory("w2", Vec::new(), Availability::Available);
    world.pass(Duration::from_secs(1));
    let ends = cancels_and_assignments(&world);
    assert_eq!(ends[start..].iter().map(|(_, assigned)| assigned).sum::<usize>(), 0);
    assert_eq!(ends.iter().map(|(cancelled, _)| cancelled).sum::<usize>(), CANCELLED as usize - 4);
}

#[test]
fn members_after_one_another_name_the_requester_too() {
    let mut world = World::new(1, 10_000);
    world.define(definition("resize"));
    let revision = world.definitions["resize"].revision;
    let job = |position: u32| {
        let on = |member| Dependency { on: Predecessor::Member(member), requires: RequiredEnd::Success };
        NewJob { revision, after: position.checked_sub(1).map(on).into_iter().collect(), ..NewJob::default() }
    };
    world.submit_all((0..CANCELLED).map(job).collect(), None, false);
    world.cancel_batch(JobId(1), &["ann"]);
    world.pass(Duration::from_secs(1));
    let ends = cancels_and_assignments(&world);
    assert_eq!(ends.iter().map(|(cancelled, _)| cancelled).sum::<usize>(), CANCELLED as usize);
}

/// The number of jobs that became due; none did so twice.
fn due(world: &World) -> usize {
    let changes = world.steps.iter().flat_map(|(_, step)| &step.changes);
    let jobs = changes.filter_map(|change| match change {
        Change::BecameDue { job, .. } => Some(*job),
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
