//! Stories of live batches: changes of their limits, their waiting members, and their lists.

use protocol::JobId;
use scheduler::batches::{BatchLimits, LiveBatch};
use scheduler::details::JobDetails;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::batches::{batch_ended, found, member, new_batch};
use super::harness::*;
use crate::store::BatchFilter;

pub(in crate::store) fn changed_limits_of_a_batch_are_known_after_a_start(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let changed = |max_failures, concurrency| Change::BatchChanged {
        first: JobId(1),
        limits: BatchLimits { max_failures, concurrency },
    };
    harness.refused(vec![changed(None, Some(3))]);
    harness.commit(vec![new_batch(1, 2, None), member(1, 1), member(2, 1)]);
    harness.commit(vec![changed(Some(7), Some(3)), changed(None, Some(4))]);
    let (loaded, _) = harness.restart();
    let known: Vec<_> = loaded.batches.iter().map(LiveBatch::limits).collect();
    assert_eq!(known, [BatchLimits { max_failures: None, concurrency: Some(4) }]);
    let row = found(&harness, 1).unwrap();
    assert_eq!((row.max_failures, row.concurrency), (None, Some(4)));
    harness.commit(vec![
        ended(1, State::Cancelled, None),
        ended(2, State::Cancelled, None),
        batch_ended(1, 2),
    ]);
    harness.refused(vec![changed(None, None)]);
}

pub(in crate::store) fn the_first_waiting_members_of_a_batch_are_found(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let members = (1..=6).map(|job| member(job, 1));
    harness.commit([worker(1, "w1"), new_batch(1, 6, None)].into_iter().chain(members).collect());
    harness.commit(vec![added(7), assigned(1, 1), ended(2, State::Cancelled, None)]);
    let row = found(&harness, 1).unwrap();
    let first = |limit| harness.archive().waiting_members(&row, limit).unwrap();
    assert_eq!(first(3), [3, 4, 5].map(JobId));
    assert_eq!(first(9), [3, 4, 5, 6].map(JobId));
}

pub(in crate::store) fn batches_are_found_by_their_requester_and_by_labels(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let of = |number: u64, batch: u64, by: Option<&str>, label: &str| {
        let labels = vec![("team".to_owned(), label.to_owned())];
        let details = JobDetails { labels, ..JobDetails::default() };
        Change::Added(AddedJob {
            batch: Some(JobId(batch)),
            submitted_by: by.map(Into::into),
            details: Some(details.into()),
            ..job(number)
        })
    };
    harness.commit(vec![new_batch(1, 2, None), of(1, 1, Some("ci"), "a"), of(2, 1, Some("ci"), "b")]);
    harness.commit(vec![new_batch(3, 1, None), of(3, 3, Some("ann"), "a")]);
    harness.commit(vec![new_batch(4, 1, None), of(4, 4, None, "c"), of(5, 5, Some("ci"), "c")]);
    harness.commit(vec![ended(3, State::Cancelled, None), batch_ended(3, 1)]);
    let list = |submitted_by: Option<&str>, label: Option<&str>| {
        let label = label.map(|value| ("team".to_owned(), value.to_owned()));
        let filter = BatchFilter {
            submitted_by: submitted_by.map(Into::into),
            label,
            limit: 9,
            ..BatchFilter::default()
        };
        let found = harness.archive().batches(&filter).unwrap();
        found.iter().map(|row| row.first.0).collect::<Vec<_>>()
    };
    assert_eq!(list(Some("ci"), None), [1]);
    assert_eq!(list(Some("ann"), None), [3]);
    assert_eq!(list(Some("nobody"), None), Vec::<u64>::new());
    assert_eq!(list(None, Some("a")), [3, 1]);
    assert_eq!(list(None, Some("b")), [1]);
    assert_eq!(list(None, Some("c")), [4]);
    assert_eq!(list(Some("ci"), Some("c")), Vec::<u64>::new());
}
