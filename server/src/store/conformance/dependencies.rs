//! Stories of jobs that come after others.

use std::path::Path;
use std::sync::Arc;

use protocol::{JobId, Timestamp};
use scheduler::batches::{BatchOptions, NewBatch};
use scheduler::definition::Definition;
use scheduler::dependencies::{DependencyRow, LiveDependency, PredecessorId, RequiredEnd};
use scheduler::details::JobDetails;
use scheduler::job::State;
use scheduler::params::{JobParam, ParamValue};
use scheduler::step::{AddedJob, Change, Ended};

use super::Backend;
use super::harness::*;
use crate::config::jobs_file;
use crate::store::{BatchState, JobFilter, PREDECESSORS_VARIABLE, RetentionCutoffs};

fn row(number: u64, on: u64, requires: RequiredEnd, ended: Option<State>) -> DependencyRow {
    DependencyRow { job: JobId(number), on: PredecessorId::Job(JobId(on)), requires, ended }
}

fn after_batch(number: u64, first: u64, requires: RequiredEnd, ended: Option<State>) -> DependencyRow {
    DependencyRow { job: JobId(number), on: PredecessorId::Batch(JobId(first)), requires, ended }
}

fn after(number: u64, on: u64) -> Change {
    Change::Dependency(row(number, on, RequiredEnd::Success, None))
}

fn waiting_job(number: u64) -> Change {
    Change::Added(AddedJob { state: State::Scheduled, ..job(number) })
}

pub(in crate::store) fn dependencies_outlive_a_restart_until_they_are_decided(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), added(2), waiting_job(3), after(3, 1), after(3, 2)]);
    harness.commit(vec![waiting_job(4), Change::Dependency(row(4, 3, RequiredEnd::Failure, None))]);
    harness.commit(vec![waiting_job(5), Change::Dependency(row(5, 3, RequiredEnd::NoSuccess, None))]);
    harness.commit(vec![ended_at(1, State::Succeeded, 5_000)]);
    let live = |number, on, requires, state| LiveDependency {
        job: JobId(number),
        on: PredecessorId::Job(JobId(on)),
        requires,
        state,
        is_skipped: false,
    };
    let (loaded, _) = harness.restart();
    let (succeeds, fails) = (RequiredEnd::Success, RequiredEnd::Failure);
    assert_eq!(
        loaded.dependencies,
        [
            live(3, 1, succeeds, Some(State::Succeeded)),
            live(3, 2, succeeds, Some(State::Queued)),
            live(4, 3, fails, Some(State::Scheduled)),
            live(5, 3, RequiredEnd::NoSuccess, Some(State::Scheduled)),
        ]
    );
    assert_eq!(
        harness.archive().jobs(&JobFilter { limit: 9, ..JobFilter::default() }).unwrap()[0].waits_for,
        Some(PredecessorId::Job(JobId(3)))
    );
    harness.commit(vec![
        Change::Dependency(row(3, 1, succeeds, Some(State::Succeeded))),
        Change::DependenciesDropped { job: JobId(4), is_skipped: false },
        Change::DependenciesDropped { job: JobId(5), is_skipped: false },
    ]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.dependencies, [live(3, 2, succeeds, Some(State::Queued))]);
    // A wrong end is kept until the job is cancelled for it.
    harness.commit(vec![
        ended_at(2, State::Failed, 6_000),
        Change::Dependency(row(3, 2, succeeds, Some(State::Failed))),
    ]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.dependencies, [live(3, 2, succeeds, Some(State::Failed))]);
    harness.commit(vec![
        ended_at(3, State::Cancelled, 6_000),
        Change::DependenciesDropped { job: JobId(3), is_skipped: false },
    ]);
    assert_eq!(harness.restart().0.dependencies, []);
}

pub(in crate::store) fn a_job_is_told_how_its_predecessors_ended(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), waiting_job(2), after(2, 1), added(3)]);
    harness.commit(vec![
        ended_at(1, State::Failed, 5_000),
        Change::Dependency(row(2, 1, RequiredEnd::Success, Some(State::Failed))),
    ]);
    let told = harness.sent(&[JobId(2), JobId(3)]);
    let [(JobId(2), sent)] = told.as_slice() else { panic!("{told:?}") };
    let ends = format!(r#"[{{"job":1,"name":"{}","state":"failed"}}]"#, definition(1).name);
    assert_eq!(sent.environment, [(PREDECESSORS_VARIABLE.to_owned(), ends)]);
}

/// Also when retention has deleted the job that left the result.
pub(in crate::store) fn a_job_keeps_the_parameters_that_it_took_from_results(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let details = JobDetails { has_predecessors: true, ..JobDetails::default() };
    let waiting = AddedJob { state: State::Scheduled, details: Some(Box::new(details)), ..job(2) };
    harness.commit(vec![added(1), assigned(1, 1), Change::Added(waiting), after(2, 1)]);
    harness.commit(vec![
        succeeded(1, 1),
        Change::Dependency(row(2, 1, RequiredEnd::Success, Some(State::Succeeded))),
        Change::ResultsTaken { job: JobId(2), definition: with_params() },
    ]);
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(9_000), ..KEEP }), 1);
    harness.restart();
    let given = JobParam { name: "n".to_owned(), value: ParamValue::Integer(1), secret: false };
    let record = harness.archive().job(JobId(2)).unwrap().unwrap();
    assert_eq!(record.params, [given]);
    let sent = harness.sent(&[JobId(2)]);
    assert!(sent[0].1.environment.contains(&("PARAM_N".to_owned(), "1".to_owned())), "{sent:?}");
}

fn with_params() -> Arc<Definition> {
    let text = "jobs: {load: {image: x, params: {n: {type: integer, default: 0}}}}";
    let loaded = jobs_file::parse(text, Path::new("jobs.yaml"), &Default::default()).unwrap();
    loaded.definitions[0].definition.clone()
}

pub(in crate::store) fn a_pipeline_is_found_from_each_of_its_jobs(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), waiting_job(2), after(2, 1), waiting_job(3), after(3, 2), added(4)]);
    for start in 1..=3 {
        let pipeline = harness.archive().pipeline(JobId(start), 10).unwrap();
        let jobs: Vec<u64> = pipeline.jobs.iter().map(|job| job.job.0).collect();
        assert_eq!((jobs.as_slice(), pipeline.is_whole), ([1, 2, 3].as_slice(), true), "from {start}");
    }
    let alone = harness.archive().pipeline(JobId(4), 10).unwrap();
    assert_eq!((alone.jobs.len(), alone.is_whole), (1, true));
    let cut = harness.archive().pipeline(JobId(1), 2).unwrap();
    assert_eq!((cut.jobs.len(), cut.is_whole), (2, false));
    assert_eq!(harness.archive().pipeline(JobId(9), 10).unwrap().jobs, []);
    let record = harness.archive().job(JobId(2)).unwrap().unwrap();
    let [before, behind] = [1, 3].map(|job| PredecessorId::Job(JobId(job)));
    assert_eq!((record.after[0].other, record.dependents[0].other), (before, behind));
}

pub(in crate::store) fn dependencies_go_with_the_job_that_waited(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), waiting_job(2), after(2, 1)]);
    harness.commit(vec![
        ended_at(1, State::Failed, 5_000),
        Change::Dependency(row(2, 1, RequiredEnd::Success, Some(State::Failed))),
        ended_at(2, State::Cancelled, 7_000),
    ]);
    let until = |at| RetentionCutoffs { ended_since: Timestamp(at), ..KEEP };
    assert_eq!(harness.remove_all(until(6_000)), 1);
    let record = harness.archive().job(JobId(2)).unwrap().unwrap();
    assert_eq!((record.after[0].state, record.after[0].name.as_str()), (Some(State::Failed), ""));
    assert_eq!(harness.remove_all(until(8_000)), 1);
    harness.commit(vec![added(3)]);
    assert_eq!(harness.archive().pipeline(JobId(1), 10).unwrap().jobs, []);
}

pub(in crate::store) fn a_batch_whose_other_members_were_skipped_succeeds(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let options = BatchOptions::default();
    let batch = NewBatch { first: JobId(1), count: 2, options, created_at: Timestamp(1_000) };
    let member =
        |number| Change::Added(AddedJob { batch: Some(JobId(1)), state: State::Scheduled, ..job(number) });
    harness.commit(vec![Change::BatchAdded(batch), member(1), member(2), after(2, 1)]);
    harness.commit(vec![
        ended_at(1, State::Succeeded, 5_000),
        ended_at(2, State::Cancelled, 5_000),
        Change::DependenciesDropped { job: JobId(2), is_skipped: true },
        Change::BatchEnded {
            first: JobId(1),
            count: 2,
            failed: 0,
            state: State::Succeeded,
            at: Timestamp(5_000),
        },
    ]);
    let batch = harness.archive().batch(JobId(1)).unwrap().unwrap();
    assert_eq!((batch.state, batch.skipped, batch.counts.cancelled), (BatchState::Succeeded, 1, 1));
}

pub(in crate::store) fn a_start_knows_which_predecessors_were_skipped(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), waiting_job(2), after(2, 1), waiting_job(3), after(3, 2)]);
    harness.commit(vec![added(4), waiting_job(5), after(5, 4)]);
    let cancelled = |number, reason: &str| {
        Change::Ended(Ended {
            job: JobId(number),
            state: State::Cancelled,
            at: Timestamp(5_000),
            reason: reason.into(),
            closed: None,
            confirmed: true,
        })
    };
    harness.commit(vec![
        ended_at(1, State::Succeeded, 5_000),
        cancelled(2, "skipped, because job 1 before it was skipped"),
        Change::DependenciesDropped { job: JobId(2), is_skipped: true },
        // The server stops between this end and the cancel of job 3.
        Change::Dependency(row(3, 2, RequiredEnd::Success, Some(State::Cancelled))),
        cancelled(4, "cancelled by ann"),
    ]);
    let (loaded, _) = harness.restart();
    let skipped: Vec<_> = loaded.dependencies.iter().map(|row| (row.job.0, row.is_skipped)).collect();
    assert_eq!(skipped, [(3, true), (5, false)]);
}

/// Job 3 comes after the batch of jobs 1 and 2, and job 4 after its first job as well.
pub(in crate::store) fn a_job_waits_for_a_whole_batch_over_restarts(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let options = BatchOptions { name: Some("film".to_owned()), ..BatchOptions::default() };
    let batch = NewBatch { first: JobId(1), count: 2, options, created_at: Timestamp(1_000) };
    let member = |number| Change::Added(AddedJob { batch: Some(JobId(1)), ..job(number) });
    let (fails, any) = (RequiredEnd::NoSuccess, RequiredEnd::Any);
    harness.commit(vec![Change::BatchAdded(batch), member(1), member(2)]);
    harness.commit(vec![waiting_job(3), Change::Dependency(after_batch(3, 1, fails, None))]);
    harness.commit(vec![
        waiting_job(4),
        Change::Dependency(after_batch(4, 1, any, None)),
        Change::Dependency(row(4, 1, any, None)),
    ]);
    let on = PredecessorId::Batch(JobId(1));
    let live = |number, requires, state| LiveDependency {
        job: JobId(number),
        on,
        requires,
        state: Some(state),
        is_skipped: false,
    };
    let first = LiveDependency { on: PredecessorId::Job(JobId(1)), ..live(4, any, State::Queued) };
    let loaded = harness.restart().0;
    assert_eq!(loaded.dependencies, [live(3, fails, State::Queued), live(4, any, State::Queued), first]);
    let waits_for =
        |harness: &Harness<'_>, job| harness.archive().job(JobId(job)).unwrap().unwrap().row.waits_for;
    assert_eq!((waits_for(&harness, 3), waits_for(&harness, 4)), (Some(on), Some(first.on)));
    assert_eq!(
        harness.archive().batch_states(&[JobId(1), JobId(2)]).unwrap(),
        [(JobId(1), BatchState::Waiting)]
    );
    let dependents = harness.archive().batch_dependents(JobId(1), 9).unwrap();
    assert_eq!(
        dependents.iter().map(|it| it.other.job()).collect::<Vec<_>>(),
        [Some(JobId(3)), Some(JobId(4))]
    );
    let pipeline = harness.archive().pipeline(JobId(3), 9).unwrap();
    assert_eq!(pipeline.jobs.len(), 1, "the members of the batch are no part of it");

    // The server stops between the end of the batch and the starts of the jobs after it.
    harness.commit(vec![
        ended_at(1, State::Failed, 5_000),
        ended_at(2, State::Succeeded, 5_000),
        Change::BatchEnded {
            first: JobId(1),
            count: 2,
            failed: 1,
            state: State::Failed,
            at: Timestamp(5_000),
        },
    ]);
    let loaded = harness.restart().0;
    assert_eq!(loaded.batches, []);
    assert_eq!(loaded.dependencies[0], live(3, fails, State::Failed));
    harness.commit(vec![
        Change::Dependency(after_batch(3, 1, fails, Some(State::Failed))),
        Change::BecameDue { job: JobId(3) },
    ]);
    assert_eq!(harness.restart().0.dependencies.len(), 2);
    let sent = harness.sent(&[JobId(3)]);
    let told =
        r#"[{"batch":1,"name":"film","state":"failed","count":2,"succeeded":1,"failed":1,"cancelled":0}]"#;
    assert_eq!(sent[0].1.environment, [(PREDECESSORS_VARIABLE.to_owned(), told.to_owned())]);
    let record = harness.archive().job(JobId(3)).unwrap().unwrap();
    assert_eq!((record.after[0].other, record.after[0].name.as_str()), (on, "film"));

    // The job keeps the end when the batch is deleted with its members.
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(6_000), ..KEEP }), 2);
    let record = harness.archive().job(JobId(3)).unwrap().unwrap();
    assert_eq!((record.after[0].state, record.after[0].name.as_str()), (Some(State::Failed), ""));
    let sent = harness.sent(&[JobId(3)]);
    assert_eq!(sent[0].1.environment[0].1, r#"[{"batch":1,"state":"failed"}]"#);
}
