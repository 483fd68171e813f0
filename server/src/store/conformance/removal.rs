//! Stories of what is no longer to be kept, and of what stays.

use std::collections::BTreeMap;

use protocol::container::Overrides;
use protocol::report::Outcome;
use protocol::{AttemptNo, JobId, Timestamp, WorkerId};
use scheduler::details::JobDetails;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Note};

use super::Backend;
use super::harness::*;
use crate::store::{CommitError, JobFilter, Removed, RetentionCutoffs};

fn late(job: u64, at: i64, said: &str) -> Change {
    let note = Note::LateReport { token: token(job, 99), worker: WorkerId(2), said: said.into() };
    Change::Noted { job: JobId(job), at: Timestamp(at), note }
}

fn keyed(key: &str, job: u64, at: i64) -> Change {
    let holder = KeyHolder { job: JobId(job), count: 1, digest: 7 };
    Change::IdempotencyKeyStored { key: key.into(), holder, at: Timestamp(at) }
}

pub(in crate::store) fn what_ended_long_ago_goes_with_all_that_belongs_to_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let overrides = Overrides { args: vec!["--fast".into()], ..Overrides::default() };
    let details =
        JobDetails { overrides, labels: vec![("team".into(), "blue".into())], ..JobDetails::default() };
    let full = |number| Change::Added(AddedJob { details: Some(Box::new(details.clone())), ..job(number) });
    let again = waiting(closed(1, 1, Outcome::Failed), State::Queued);
    harness.commit(vec![full(1), full(2), assigned(1, 1), started(1, 1), again]);
    harness.commit(vec![assigned_as(1, 2, 2, 1), started(1, 2), late(1, 9, "failed")]);
    harness.commit(vec![succeeded(1, 2), ended_at(2, State::Cancelled, 7_000)]);
    harness.commit(vec![Change::Added(AddedJob { retry_of: Some(JobId(1)), ..job(3) })]);
    assert!(!harness.archive().job(JobId(3)).unwrap().unwrap().retry_of_removed);

    assert_eq!(
        harness.remove_all(RetentionCutoffs { ended_since: Timestamp(5_001), ..KEEP }),
        0,
        "it ended just then"
    );
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(5_002), ..KEEP }), 1);
    for _ in 0..2 {
        assert_eq!(harness.archive().job(JobId(1)).unwrap(), None);
        let removed = [0, 1, 2, 3, 4].map(|number| harness.archive().was_removed(JobId(number)).unwrap());
        assert_eq!(removed, [false, true, false, false, false]);
        assert_eq!(harness.list(JobFilter::default()), [3, 2]);
        let blue = JobFilter { label: Some(("team".into(), "blue".into())), ..JobFilter::default() };
        assert_eq!(harness.list(blue), [2]);
        assert_eq!(harness.archive().overrides(&[JobId(1), JobId(2)]).unwrap().len(), 1);
        let needed = harness.archive().first_with_output(&[1, 7, 3, 2].map(JobId), &BTreeMap::new());
        assert_eq!(needed.unwrap(), Some(JobId(3)));
        assert!(harness.archive().job(JobId(3)).unwrap().unwrap().retry_of_removed);
        assert_eq!(harness.archive().last_ended("resize").unwrap().unwrap().job, JobId(2));
        harness.restart();
    }
    // Reports about a deleted job change nothing.
    harness.commit(vec![late(1, 10, "failed")]);
    assert_eq!(harness.archive().job(JobId(1)).unwrap(), None);
}

pub(in crate::store) fn what_has_not_ended_is_never_removed(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let held = Change::Added(AddedJob { state: State::Scheduled, ..job(3) });
    harness.commit(vec![added(1), assigned(1, 1), started(1, 1), added(2), held, added(4)]);
    harness.commit(vec![waiting(closed(1, 1, Outcome::Lost), State::Quarantined)]);
    harness.commit(vec![assigned(2, 2), started(2, 2), ended_at(4, State::Expired, 5)]);
    let nothing = RetentionCutoffs {
        ended_since: Timestamp(i64::MAX),
        ended_max: 0,
        late_since: Timestamp(i64::MAX),
        ..KEEP
    };
    assert_eq!(harness.remove_all(nothing), 1);
    assert_eq!(harness.list(JobFilter::default()), [3, 2, 1]);
    assert_eq!(harness.restart().1.len(), 3);
    harness.commit(vec![succeeded(2, 2)]);
    assert_eq!(harness.remove_all(nothing), 1, "now it has");
    assert_eq!(harness.list(JobFilter::default()), [3, 1]);
}

pub(in crate::store) fn of_too_many_ended_jobs_the_earliest_ends_go_first(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=6).map(added).collect());
    for (number, at) in [(3, 100), (1, 200), (6, 300), (2, 400), (5, 500)] {
        harness.commit(vec![ended_at(number, State::Cancelled, at)]);
    }
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_max: 5, ..KEEP }), 0);
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_max: 3, ..KEEP }), 2);
    assert_eq!(harness.list(JobFilter::default()), [6, 5, 4, 2]);
    harness.restart();
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_max: 2, ..KEEP }), 1);
    assert_eq!(harness.list(JobFilter::default()), [5, 4, 2], "the count survives a restart");
}

pub(in crate::store) fn a_numbers_end_is_not_its_beginning_again(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), added(2), assigned(2, 7)]);
    harness.commit(vec![ended_at(1, State::Cancelled, 5), succeeded(2, 7)]);
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_max: 0, ..KEEP }), 2);
    harness.refused(vec![added(2)]);
    let (loaded, live) = harness.restart();
    assert!(live.is_empty());
    assert_eq!((loaded.last_job, loaded.last_fence.0), (JobId(2), 7));
    harness.refused(vec![added(2)]);
    harness.commit(vec![added(3)]);
}

pub(in crate::store) fn removal_goes_in_steps_and_says_when_it_is_done(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    // Over the edge of a block of a coarse index.
    let total = 5_000;
    harness.commit((1..=total).map(added).collect());
    harness.commit((1..=total).map(|number| ended_at(number, State::Cancelled, 10)).collect());
    let cutoffs = RetentionCutoffs { ended_since: Timestamp(11), rows_max: 300, ..KEEP };
    let mut left = total;
    loop {
        let Removed { jobs, more, .. } = harness.remove(cutoffs);
        assert!(jobs <= 300);
        left -= jobs;
        if left % 900 == 0 {
            harness.restart();
        }
        if !more {
            break;
        }
        assert!(jobs > 0 || left == 0, "each step gets on");
    }
    assert_eq!(left, 0);
    assert_eq!(harness.remove(cutoffs), Removed::default());
    assert!(harness.list(JobFilter::default()).is_empty());
}

pub(in crate::store) fn keys_and_late_reports_have_an_age_of_their_own(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let cancel =
        Change::Noted { job: JobId(1), at: Timestamp(1), note: Note::CancelRequested { by: "x".into() } };
    harness.commit(vec![added(1), keyed("a", 1, 50), keyed("b", 1, 60), cancel]);
    harness.commit(vec![late(1, 50, "succeeded"), late(1, 60, "failed")]);
    let removed = harness.remove(RetentionCutoffs {
        keyed_since: Timestamp(60),
        late_since: Timestamp(60),
        rows_max: 9,
        ..KEEP
    });
    assert_eq!(removed, Removed { keys: 1, late_reports: 1, ..Removed::default() });
    assert_eq!(harness.archive().key("a").unwrap().0, None);
    assert!(harness.archive().key("b").unwrap().0.is_some());
    let notes = harness.archive().job(JobId(1)).unwrap().unwrap().notes;
    assert_eq!(notes.iter().map(|(at, _)| at.0).collect::<Vec<_>>(), [1, 60]);
    harness.commit(vec![added(2), keyed("a", 2, 70)]);
    assert_eq!(harness.archive().key("a").unwrap().0.map(|holder| holder.job), Some(JobId(2)));
}

pub(in crate::store) fn the_time_that_retention_goes_by_is_kept(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    assert_eq!(harness.restart().0.last_retention_time, None);
    harness.remove(RetentionCutoffs { by: Some(Timestamp(77)), ..KEEP });
    harness.remove(KEEP);
    assert_eq!(
        harness.restart().0.last_retention_time,
        Some(Timestamp(77)),
        "saying nothing changes nothing"
    );
    harness.remove(RetentionCutoffs { by: Some(Timestamp(-5)), ..KEEP });
    assert_eq!(harness.restart().0.last_retention_time, Some(Timestamp(-5)));
}

pub(in crate::store) fn an_older_epoch_removes_nothing(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1)]);
    harness.commit(vec![ended_at(1, State::Cancelled, 5)]);
    let old = harness.epoch;
    harness.restart();
    let fenced = harness.store.as_mut().unwrap().remove(old, &RetentionCutoffs { ended_max: 0, ..KEEP });
    assert!(matches!(fenced, Err(CommitError::EpochReplaced { ours }) if ours == old));
    assert_eq!(harness.list(JobFilter::default()), [1]);
}

pub(in crate::store) fn lists_go_on_where_jobs_were_removed(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let total = 13_000;
    harness.commit((1..=total).map(added).collect());
    harness.commit((1..=total).map(|number| assigned_as(number, number, 1, 1 + number % 2)).collect());
    // One in the middle of the first block stays alive, and one of the second ends late.
    let lives = |number: u64| number == 2_000;
    let end = |number: u64| if number == 5_000 { 90 } else { 10 };
    let ending = |number: u64| match succeeded(number, number) {
        Change::Ended(ended) => Change::Ended(scheduler::step::Ended { at: Timestamp(end(number)), ..ended }),
        other => other,
    };
    harness.commit((1..=9_000).filter(|number| !lives(*number)).map(ending).collect());
    assert_eq!(
        harness.remove_all(RetentionCutoffs { ended_since: Timestamp(11), rows_max: 1_000, ..KEEP }),
        8_998
    );
    let named =
        |state| JobFilter { name: Some("resize".into()), states: vec![state], ..JobFilter::default() };
    assert_eq!(harness.list(named(State::Succeeded)), [5_000]);
    let below = JobFilter { before: Some(JobId(9_003)), ..JobFilter::default() };
    assert_eq!(harness.list(below), [9_002, 9_001, 5_000, 2_000]);
    let worker = JobFilter { worker: Some(WorkerId(1)), before: Some(JobId(9_003)), ..JobFilter::default() };
    assert_eq!(harness.list(worker), [9_002, 5_000, 2_000]);
    let since = JobFilter { until: Some(Timestamp(6_001)), ..JobFilter::default() };
    assert_eq!(harness.list(since), [5_000, 2_000]);
    assert_eq!(harness.archive().last_ended("resize").unwrap().unwrap().job, JobId(5_000));
    assert_eq!(harness.archive().job(JobId(2_000)).unwrap().unwrap().row.attempts, AttemptNo(1));
    harness.commit(vec![ending(2_000)]);
    assert_eq!(
        harness.remove_all(RetentionCutoffs { ended_since: Timestamp(11), rows_max: 1_000, ..KEEP }),
        1
    );
    assert_eq!(harness.list(JobFilter { before: Some(JobId(9_001)), ..JobFilter::default() }), [5_000]);
}

pub(in crate::store) fn of_very_many_late_reports_the_first_and_the_last_are_kept(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let cancel =
        Change::Noted { job: JobId(1), at: Timestamp(0), note: Note::CancelRequested { by: "x".into() } };
    harness.commit(vec![added(1), cancel]);
    for number in 1..=40 {
        harness.commit(vec![late(1, 2 * number - 1, "succeeded"), late(1, 2 * number, "failed")]);
    }
    harness.restart();
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    let kept: Vec<i64> = record.notes.iter().map(|(at, _)| at.0).collect();
    assert_eq!(kept, [0, 1, 2, 3, 4, 5, 6, 7, 8, 73, 74, 75, 76, 77, 78, 79, 80]);
    assert_eq!(record.late_left_out, 64);
}
