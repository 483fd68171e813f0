//! Stories of failures that need attention: a retry or an acknowledgement resolves them.

use std::collections::BTreeMap;

use protocol::report::Outcome;
use protocol::{JobId, Revision, Timestamp};
use scheduler::job::State;
use scheduler::run_on::{MemberPlan, MemberRow, ParentCounts, ParentRow};
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;
use crate::store::{
    Acknowledgement, AcknowledgementChange, FailureStatus, JobFilter, RecordChange, RetentionCutoffs,
};

fn retry(number: u64, of: u64) -> Change {
    Change::Added(AddedJob { retry_of: Some(JobId(of)), ..job(number) })
}

fn by(name: &str, at: i64) -> Acknowledgement {
    Acknowledgement { at: Timestamp(at), by: Some(name.into()), reason: Some("disk swap".into()) }
}

fn acknowledge(harness: &mut Harness<'_>, jobs: &[u64], with: Acknowledgement) {
    let jobs = jobs.iter().copied().map(JobId).collect();
    harness.change_record(&RecordChange::Acknowledgement(AcknowledgementChange::Add(jobs, with)));
}

fn take_back(harness: &mut Harness<'_>, jobs: &[u64]) {
    let jobs = jobs.iter().copied().map(JobId).collect();
    harness.change_record(&RecordChange::Acknowledgement(AcknowledgementChange::Remove(jobs)));
}

/// The list, which agrees with the totals and with each job.
fn unresolved(harness: &Harness<'_>) -> Vec<u64> {
    let listed = harness.list(JobFilter { unresolved: true, ..JobFilter::default() });
    let totals = harness.archive().unresolved().unwrap();
    let by_name = |name: &String| {
        harness.list(JobFilter { unresolved: true, name: Some(name.clone()), ..JobFilter::default() })
    };
    let counted = totals.keys().map(|name| (name.clone(), by_name(name).len() as u64)).collect();
    assert_eq!((totals.values().sum::<u64>(), &totals), (listed.len() as u64, &counted));
    for row in harness.archive().jobs(&JobFilter { limit: 500, ..JobFilter::default() }).unwrap() {
        assert_eq!(row.failure == FailureStatus::Unresolved, listed.contains(&row.job.0), "{:?}", row.job);
    }
    listed
}

fn status(harness: &Harness<'_>, job: u64) -> FailureStatus {
    harness.archive().job(JobId(job)).unwrap().unwrap().row.failure
}

pub(in crate::store) fn a_failure_is_unresolved_until_it_is_retried(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=6).map(added).collect());
    harness.commit(vec![
        ended_at(1, State::Failed, 5_000),
        ended_at(2, State::Expired, 5_001),
        ended_at(3, State::Lost, 5_002),
        ended_at(4, State::Cancelled, 5_003),
    ]);
    assert_eq!(unresolved(&harness), [3, 2, 1], "a cancel is no failure, and the others have not ended");
    // A retry stands for its job, also if it fails in the same group.
    harness.commit(vec![retry(7, 1)]);
    assert_eq!(unresolved(&harness), [3, 2]);
    harness.commit(vec![ended_at(7, State::Failed, 5_004), retry(8, 2), ended_at(8, State::Lost, 5_005)]);
    assert_eq!(unresolved(&harness), [8, 7, 3]);
    // A job that fails and is retried in one group was never on the list.
    harness.commit(vec![
        ended_at(5, State::Failed, 5_006),
        retry(9, 5),
        ended_at(9, State::Cancelled, 5_007),
    ]);
    assert_eq!(unresolved(&harness), [8, 7, 3], "nobody has to look at a retry that somebody cancelled");
    // A second retry changes nothing.
    harness.commit(vec![retry(10, 1)]);
    harness.restart();
    assert_eq!(unresolved(&harness), [8, 7, 3]);
}

pub(in crate::store) fn a_failure_is_unresolved_until_it_is_acknowledged(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let mail = |number| Change::Added(AddedJob { revision: Revision(2), ..job(number) });
    harness.commit(vec![added(1), added(2), mail(3), added(4), added(5)]);
    harness.commit([1, 2, 3, 4].map(|job| ended_at(job, State::Failed, 5_000)).into());
    assert_eq!(
        harness.archive().unresolved().unwrap(),
        BTreeMap::from([("mail".to_owned(), 1), ("resize".to_owned(), 3)])
    );
    // Job 5 has not failed, and there is no job 77.
    acknowledge(&mut harness, &[2, 3, 5, 77], by("anna", 6_000));
    assert_eq!(unresolved(&harness), [4, 1]);
    assert_eq!(harness.archive().unresolved().unwrap(), BTreeMap::from([("resize".to_owned(), 2)]));
    assert_eq!(status(&harness, 2), FailureStatus::Acknowledged(by("anna", 6_000)));
    assert_eq!(status(&harness, 5), FailureStatus::None);
    acknowledge(&mut harness, &[2], by("ben", 7_000));
    assert_eq!(status(&harness, 2), FailureStatus::Acknowledged(by("anna", 6_000)), "the first one stays");
    harness.restart();
    assert_eq!(status(&harness, 3), FailureStatus::Acknowledged(by("anna", 6_000)));
    take_back(&mut harness, &[2, 1, 77]);
    assert_eq!((unresolved(&harness), status(&harness, 2)), (vec![4, 2, 1], FailureStatus::Unresolved));
    // A failure that was retried stays resolved.
    harness.commit(vec![retry(6, 3)]);
    take_back(&mut harness, &[3]);
    assert_eq!((unresolved(&harness), status(&harness, 3)), (vec![4, 2, 1], FailureStatus::None));
    let older = JobFilter { unresolved: true, before: Some(JobId(4)), limit: 1, ..JobFilter::default() };
    assert_eq!(harness.list(older), [2]);
    let of = |state| JobFilter { unresolved: true, states: vec![state], ..JobFilter::default() };
    assert_eq!(harness.list(of(State::Failed)), [4, 2, 1]);
    assert!(harness.list(of(State::Lost)).is_empty() && harness.list(of(State::Queued)).is_empty());
}

pub(in crate::store) fn jobs_in_backoff_are_told_from_delayed_ones(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let delayed = |number| Change::Added(AddedJob { state: State::Scheduled, ..job(number) });
    harness.commit(vec![added(1), added(2), delayed(3), added(4)]);
    harness.commit(vec![assigned(1, 1), assigned(2, 2), assigned(4, 4)]);
    harness.commit(vec![
        started(1, 1),
        waiting(closed(1, 1, Outcome::Failed), State::Scheduled),
        waiting(closed(2, 2, Outcome::Released), State::Scheduled),
        waiting(closed(4, 4, Outcome::Failed), State::Queued),
    ]);
    let backoff = |filter| harness.list(JobFilter { backoff: true, ..filter });
    assert_eq!(backoff(JobFilter::default()), [1], "job 2 was given back, 3 is delayed, and 4 is due");
    assert_eq!(backoff(JobFilter { name: Some("resize".into()), ..JobFilter::default() }), [1]);
    assert_eq!(backoff(JobFilter { states: vec![State::Scheduled], ..JobFilter::default() }), [1]);
    for other in [
        JobFilter { states: vec![State::Queued], ..JobFilter::default() },
        JobFilter { ended_since: Some(Timestamp(0)), ..JobFilter::default() },
        JobFilter { unresolved: true, ..JobFilter::default() },
        JobFilter { before: Some(JobId(1)), ..JobFilter::default() },
    ] {
        assert!(backoff(other.clone()).is_empty(), "{other:?}");
    }
}

pub(in crate::store) fn failures_are_forgotten_with_their_jobs(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=4).map(added).collect());
    harness.commit((1..=3).map(|job| ended_at(job, State::Failed, 5_000)).collect());
    acknowledge(&mut harness, &[2], by("anna", 6_000));
    harness.commit(vec![ended_at(4, State::Failed, 6_000)]);
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(5_001), ..KEEP }), 3);
    assert_eq!(unresolved(&harness), [4]);
    take_back(&mut harness, &[2]);
    assert_eq!(unresolved(&harness), [4], "the acknowledgement went with its job");
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(7_000), ..KEEP }), 1);
    assert!(unresolved(&harness).is_empty());
}

pub(in crate::store) fn a_parent_stands_for_its_failed_members(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let row = ParentRow {
        job: JobId(1),
        plan: MemberPlan::All,
        is_complete: true,
        counts: ParentCounts::default(),
        started_at: None,
        cancelled_by: None,
    };
    let member = |number| Change::Member(MemberRow { job: JobId(number), parent: JobId(1), pinned: None });
    harness.commit(vec![added(1), Change::Parent(row), member(2), added(2), member(3), added(3)]);
    harness.commit(vec![ended_at(2, State::Failed, 5_000)]);
    assert!(unresolved(&harness).is_empty());
    harness.commit(vec![ended_at(3, State::Succeeded, 5_000), ended_at(1, State::Failed, 5_000)]);
    assert_eq!(unresolved(&harness), [1]);
    acknowledge(&mut harness, &[1, 2], by("anna", 6_000));
    take_back(&mut harness, &[1, 2]);
    assert_eq!(unresolved(&harness), [1]);
}

pub(in crate::store) fn a_retry_resolves_nothing_before_its_batch_is_made(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let pending = |first, last| Change::PendingBatch { first: JobId(first), last: JobId(last) };
    let repeated = |number, batch, of| {
        Change::Added(AddedJob { batch: Some(JobId(batch)), retry_of: Some(JobId(of)), ..job(number) })
    };
    harness.commit(vec![added(1), added(2), added(3)]);
    harness.commit((1..=3).map(|job| ended_at(job, State::Failed, 5_000)).collect());
    harness.commit(vec![pending(4, 5), repeated(4, 4, 1)]);
    assert_eq!(unresolved(&harness), [3, 2, 1]);
    // The batch is gone after a crash.
    harness.restart();
    assert_eq!(unresolved(&harness), [3, 2, 1]);
    harness.commit(vec![pending(6, 8), repeated(6, 6, 1), repeated(7, 6, 2)]);
    assert_eq!(unresolved(&harness), [3, 2, 1]);
    // An earlier member ends in the group that makes the last one.
    harness.commit(vec![
        repeated(8, 6, 3),
        Change::BatchCompleted { first: JobId(6) },
        ended_at(7, State::Cancelled, 6_000),
    ]);
    assert!(unresolved(&harness).is_empty());
}
