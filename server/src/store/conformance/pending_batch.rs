//! Stories of large batches, whose members are made over many groups.

use protocol::container::Overrides;
use protocol::report::Outcome;
use protocol::{Fence, JobId, Timestamp, WorkerId};
use scheduler::details::JobDetails;
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Note};

use super::Backend;
use super::harness::*;
use crate::store::JobFilter;

fn forming(first: u64, last: u64) -> Change {
    Change::PendingBatch { first: JobId(first), last: JobId(last) }
}

fn formed(first: u64) -> Change {
    Change::BatchCompleted { first: JobId(first) }
}

fn member(number: u64, batch: u64) -> Change {
    let overrides = Overrides { args: vec![format!("--{number}")], ..Overrides::default() };
    let details =
        JobDetails { overrides, labels: vec![("team".into(), "blue".into())], ..JobDetails::default() };
    Change::Added(AddedJob { batch: Some(JobId(batch)), details: Some(details.into()), ..job(number) })
}

/// Every list that these jobs could be on.
fn lists(harness: &Harness<'_>) -> Vec<Vec<u64>> {
    let filters = [
        JobFilter::default(),
        JobFilter { states: vec![State::Queued], ..JobFilter::default() },
        JobFilter { name: Some("resize".into()), ..JobFilter::default() },
        JobFilter { since: Some(Timestamp(1_000)), ..JobFilter::default() },
        JobFilter { until: Some(Timestamp(9_000)), ..JobFilter::default() },
    ];
    filters.into_iter().map(|filter| harness.list(filter)).collect()
}

fn of_batch(harness: &Harness<'_>, batch: u64) -> Vec<u64> {
    harness.list(JobFilter { batch: Some(JobId(batch)), ..JobFilter::default() })
}

fn labelled(harness: &Harness<'_>) -> Vec<u64> {
    harness.list(JobFilter { label: Some(("team".into(), "blue".into())), ..JobFilter::default() })
}

pub(in crate::store) fn a_batch_is_hidden_until_its_last_member_is_made(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), forming(2, 5), member(2, 2), member(3, 2)]);
    harness.commit(vec![added(6), member(4, 2)]);
    for list in lists(&harness) {
        assert_eq!(list, [6, 1]);
    }
    assert_eq!(harness.list(JobFilter { before: Some(JobId(6)), ..JobFilter::default() }), [1]);
    assert_eq!(harness.list(JobFilter { limit: 1, ..JobFilter::default() }), [6]);
    assert!(of_batch(&harness, 2).is_empty() && labelled(&harness).is_empty());
    for hidden in 2..=5 {
        assert_eq!(harness.archive().job(JobId(hidden)).unwrap(), None);
        assert!(!harness.archive().was_removed(JobId(hidden)).unwrap());
    }
    assert_eq!(harness.archive().overrides(&[JobId(2), JobId(3)]).unwrap(), []);
    // Somebody who makes up tokens finds nobody there.
    let note = Note::LateReport { token: token(2, 9), worker: WorkerId(1), said: "succeeded".into() };
    harness.commit(vec![Change::Noted { job: JobId(2), at: Timestamp(9), note }]);

    harness.commit(vec![member(5, 2), formed(2)]);
    for list in lists(&harness) {
        assert_eq!(list, [6, 5, 4, 3, 2, 1]);
    }
    assert_eq!(harness.list(JobFilter { limit: 3, ..JobFilter::default() }), [6, 5, 4]);
    assert_eq!((of_batch(&harness, 2), labelled(&harness)), (vec![5, 4, 3, 2], vec![5, 4, 3, 2]));
    let record = harness.archive().job(JobId(2)).unwrap().unwrap();
    assert_eq!((record.overrides.args, record.notes), (vec!["--2".to_owned()], vec![]));
    assert_eq!(harness.archive().overrides(&[JobId(3)]).unwrap().len(), 1);
    let (loaded, live) = harness.restart();
    assert_eq!((loaded.last_job, live.len()), (JobId(6), 6));
}

pub(in crate::store) fn what_was_made_of_a_batch_is_gone_after_a_restart(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), forming(2, 5), member(2, 2), member(3, 2)]);
    harness.commit(vec![added(6), member(4, 2)]);
    for _ in 0..2 {
        let (loaded, live) = harness.restart();
        assert_eq!(live.iter().map(|job| job.job.0).collect::<Vec<_>>(), [1, 6]);
        assert_eq!(loaded.last_job, JobId(6));
        assert_eq!(harness.list(JobFilter::default()), [6, 1]);
        assert!(of_batch(&harness, 2).is_empty() && labelled(&harness).is_empty());
        harness.refused(vec![member(4, 2)]);
        harness.refused(vec![formed(2)]);
        for number in 1..=7 {
            assert!(!harness.archive().was_removed(JobId(number)).unwrap(), "nobody was promised {number}");
        }
    }
    let holder = KeyHolder { job: JobId(7), count: 2, digest: 1 };
    let keyed = Change::IdempotencyKeyStored { key: "k".into(), holder, at: Timestamp(1) };
    harness.commit(vec![forming(7, 8), member(7, 7)]);
    harness.commit(vec![member(8, 7), formed(7), keyed]);
    assert_eq!(labelled(&harness), [8, 7], "the next try finds nothing in its way");
}

pub(in crate::store) fn members_are_made_once_and_where_numbers_were_set_aside(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), forming(2, 4), member(2, 2)]);
    harness.commit(vec![added(5), forming(6, 7), member(6, 6)]);
    for (why, change) in [
        ("it is there", member(2, 2)),
        ("before the batch", member(1, 2)),
        ("behind the batch", added(5)),
        ("its last member is not there", formed(2)),
        ("no such batch", formed(3)),
        ("numbers of another", forming(4, 9)),
        ("nobody is there yet", assigned(3, 1)),
    ] {
        harness.refused(vec![added(8), change]);
        assert_eq!(harness.list(JobFilter::default()), [5, 1], "{why}: all of the group or nothing");
    }
    harness.commit(vec![member(7, 6), formed(6)]);
    assert_eq!(harness.list(JobFilter::default()), [7, 6, 5, 1]);
    harness.commit(vec![member(3, 2)]);
    harness.commit(vec![member(4, 2), formed(2)]);
    assert_eq!(harness.list(JobFilter::default()), [7, 6, 5, 4, 3, 2, 1]);
    // Numbers after it may be left out in the same group, and later.
    let skipped = |after, job| Change::NumbersSkipped {
        after: JobId(after),
        job: JobId(job),
        fence: Fence(9),
        at: Timestamp(1),
    };
    harness.commit(vec![forming(8, 10), member(8, 8), skipped(10, 20), added(21)]);
    harness.commit(vec![skipped(21, 30), member(9, 8)]);
    harness.commit(vec![member(10, 8), formed(8), added(31)]);
    assert_eq!(harness.list(JobFilter { limit: 5, ..JobFilter::default() }), [31, 21, 10, 9, 8]);
}

pub(in crate::store) fn a_member_lives_like_any_other_job(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let later = AddedJob { state: State::Scheduled, batch: Some(JobId(1)), ..job(2) };
    harness.commit(vec![forming(1, 4), member(1, 1), Change::Added(later)]);
    // The last slice, and what follows from it in the same step.
    harness.commit(vec![member(3, 1), member(4, 1), formed(1), assigned(1, 1), assigned(4, 2)]);
    harness.commit(vec![started(4, 2), succeeded(4, 2), Change::BecameDue { job: JobId(2) }]);
    harness
        .commit(vec![ended(3, State::Cancelled, None), waiting(closed(1, 1, Outcome::Lost), State::Queued)]);
    let (_, live) = harness.restart();
    let states: Vec<_> = live.iter().map(|job| (job.job.0, job.state)).collect();
    assert_eq!(states, [(1, State::Queued), (2, State::Queued)]);
    assert_eq!((harness.state(3), harness.state(4)), (State::Cancelled, State::Succeeded));
    assert_eq!(of_batch(&harness, 1), [4, 3, 2, 1]);
}
