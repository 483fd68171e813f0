//! Stories of batches and of what they count.

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{JobId, Revision, Timestamp};
use scheduler::batches::{BatchOptions, LiveBatch, NewBatch};
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, Updated};

use super::Backend;
use super::harness::*;
use crate::store::{BatchCounts, BatchFilter, BatchRow, BatchState, JobFilter, RetentionCutoffs};

pub(super) fn new_batch(first: u64, count: u32, name: Option<&str>) -> Change {
    let (name, max_failures, concurrency) = (name.map(str::to_owned), Some(3), Some(7));
    let options = BatchOptions { name, max_failures, concurrency, ..BatchOptions::default() };
    Change::BatchAdded(NewBatch { first: JobId(first), count, options, created_at: Timestamp(1_000) })
}

pub(super) fn member(number: u64, batch: u64) -> Change {
    Change::Added(AddedJob { batch: Some(JobId(batch)), ..job(number) })
}

pub(super) fn batch_ended(first: u64, count: u32) -> Change {
    Change::BatchEnded {
        first: JobId(first),
        count,
        failed: 0,
        state: State::Succeeded,
        at: Timestamp(7_000),
    }
}

pub(super) fn found(harness: &Harness<'_>, first: u64) -> Option<BatchRow> {
    harness.archive().batch(JobId(first)).unwrap()
}

/// Counts the members one by one.
fn recount(harness: &Harness<'_>, first: u64) -> BatchCounts {
    let mut counts = BatchCounts::default();
    for job in harness.list(JobFilter { batch: Some(JobId(first)), ..JobFilter::default() }) {
        *match harness.state(job) {
            State::Scheduled => &mut counts.scheduled,
            State::Queued => &mut counts.queued,
            State::Assigned => &mut counts.assigned,
            State::Running => &mut counts.running,
            State::Quarantined => &mut counts.quarantined,
            State::Succeeded => &mut counts.succeeded,
            State::Failed => &mut counts.failed,
            State::Cancelled => &mut counts.cancelled,
            State::Expired => &mut counts.expired,
            State::Lost => &mut counts.lost,
        } += 1;
    }
    counts
}

/// A member as the test knows it.
#[derive(Clone, Copy)]
struct Known {
    state: State,
    attempts: u32,
    fence: u64,
}

/// Something that may happen to a job in its state.
fn happen(job: u64, known: &mut Known, last_fence: &mut u64, dice: u64) -> Vec<Change> {
    let fence = known.fence;
    let (change, state) = match (known.state, dice % 6) {
        (State::Queued, 0) => (ended(job, State::Cancelled, None), State::Cancelled),
        (State::Queued, 1) => (ended(job, State::Expired, None), State::Expired),
        (State::Queued | State::Scheduled, 2) => (updated(job, State::Scheduled), State::Scheduled),
        (State::Queued | State::Scheduled, 3) => (updated(job, State::Queued), State::Queued),
        (State::Queued, _) => {
            *last_fence += 1;
            (known.fence, known.attempts) = (*last_fence, known.attempts + 1);
            (assigned_as(job, known.fence, known.attempts, 1), State::Assigned)
        }
        (State::Assigned, 0) => {
            (waiting(closed(job, fence, Outcome::Lost), State::Quarantined), State::Quarantined)
        }
        (State::Assigned | State::Running, 5) => (stopping(job, fence, StopCause::Cancel), known.state),
        (State::Assigned, _) => (started(job, fence), State::Running),
        (State::Running, 0) => {
            (waiting(closed(job, fence, Outcome::Failed), State::Scheduled), State::Scheduled)
        }
        (State::Running, 1) => {
            (ended(job, State::Failed, Some(closed(job, fence, Outcome::Failed))), State::Failed)
        }
        (State::Running, 2) => {
            (ended(job, State::Lost, Some(closed(job, fence, Outcome::Lost))), State::Lost)
        }
        (State::Running, _) => (succeeded(job, fence), State::Succeeded),
        (State::Scheduled | State::Quarantined, 0) => (ended(job, State::Cancelled, None), State::Cancelled),
        (State::Scheduled, _) => (Change::BecameDue { job: JobId(job) }, State::Queued),
        (State::Quarantined, _) => (Change::QuarantineReleased { job: JobId(job) }, State::Queued),
        _ => return Vec::new(),
    };
    known.state = state;
    vec![change]
}

fn updated(job: u64, state: State) -> Change {
    Change::Updated(Updated { job: JobId(job), state, due_at: Timestamp(2_000), priority: 1 })
}

const MEMBERS: u32 = 6;

pub(in crate::store) fn a_batch_counts_its_members_whatever_becomes_of_them(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1")]);
    let mut dice = 1_u64;
    let mut roll = move |sides: u64| {
        // Knuth's generator: the upper half is random enough.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let mut last_fence = 0;
    for round in 0..12_u64 {
        let first = 1 + round * u64::from(MEMBERS);
        let mut jobs = vec![Known { state: State::Queued, attempts: 0, fence: 0 }; MEMBERS as usize];
        let mut changes = vec![new_batch(first, MEMBERS, None)];
        changes.extend((first..first + u64::from(MEMBERS)).map(|job| member(job, first)));
        while jobs.iter().any(|job| !job.state.has_ended()) {
            // Groups of several changes, of one job or of many.
            for _ in 0..=roll(6) {
                let which = roll(u64::from(MEMBERS)) as usize;
                changes.extend(happen(first + which as u64, &mut jobs[which], &mut last_fence, roll(6)));
            }
            harness.commit(std::mem::take(&mut changes));
            if roll(8) == 0 {
                let (loaded, live) = harness.restart();
                let row = found(&harness, first).unwrap();
                let (failed, cancelled, skipped) = (row.counts.failures(), row.counts.cancelled, row.skipped);
                let max_failures = Some(3);
                let live = u32::try_from(live.len()).unwrap();
                let concurrency = Some(7);
                let expected = LiveBatch {
                    first: JobId(first),
                    count: MEMBERS,
                    live,
                    failed,
                    cancelled,
                    skipped,
                    max_failures,
                    concurrency,
                    cancelled_by: None,
                    unique_key: None,
                };
                assert_eq!(loaded.batches, [expected]);
            }
            let row = found(&harness, first).unwrap();
            assert_eq!(row.counts, recount(&harness, first));
            assert_eq!(row.ended_at, None);
        }
        harness.commit(vec![batch_ended(first, MEMBERS)]);
        assert_eq!(found(&harness, first).unwrap().ended_at, Some(Timestamp(7_000)));
    }
    assert_eq!(harness.restart().0.batches, []);
}

pub(in crate::store) fn neighbours_of_a_batch_are_not_counted_with_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1")]);
    // Two batches with a job before, between and after them.
    harness.commit(vec![
        added(1),
        new_batch(2, 2, None),
        member(2, 2),
        member(3, 2),
        added(4),
        new_batch(5, 1, None),
        member(5, 5),
        added(6),
    ]);
    let assign = |jobs: &[u64]| jobs.iter().map(|job| assigned(*job, 10 + job)).collect::<Vec<_>>();
    harness.commit(assign(&[1, 3, 4, 6]));
    let counts = |queued, assigned| BatchCounts { queued, assigned, ..BatchCounts::default() };
    let both = |harness: &Harness<'_>| [2, 5].map(|first| found(harness, first).unwrap().counts);
    assert_eq!(both(&harness), [counts(1, 1), counts(1, 0)]);
    harness.restart();
    harness.commit(assign(&[2, 5]));
    assert_eq!(both(&harness), [counts(0, 2), counts(0, 1)]);
}

pub(in crate::store) fn a_batch_ends_with_its_last_member_only(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![new_batch(1, 2, None), member(1, 1), member(2, 1), ended(1, State::Cancelled, None)]);
    harness.refused(vec![batch_ended(1, 2)]);
    assert_eq!(found(&harness, 1).unwrap().state, BatchState::Running);
    harness.commit(vec![ended(2, State::Failed, None), batch_ended(1, 2)]);
    assert_eq!(found(&harness, 1).unwrap().state, BatchState::Failed);
    let failures = harness.archive().batch_failures(JobId(1), 5).unwrap();
    assert_eq!(failures.first.iter().map(|row| row.job.0).collect::<Vec<_>>(), [2]);
}

pub(in crate::store) fn a_cancelled_batch_is_known_after_a_start(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let cancelled = |first| Change::BatchCancelled {
        first: JobId(first),
        by: "http 10.0.0.1".into(),
        at: Timestamp(5_000),
    };
    harness.refused(vec![cancelled(1)]);
    harness.commit(vec![new_batch(1, 2, None), member(1, 1), member(2, 1)]);
    harness.commit(vec![new_batch(3, 1, None), member(3, 3)]);
    harness.commit(vec![cancelled(1), ended(1, State::Cancelled, None)]);
    let (loaded, _) = harness.restart();
    let known: Vec<_> =
        loaded.batches.iter().map(|it| (it.first.0, it.live, it.cancelled_by.as_deref())).collect();
    assert_eq!(known, [(1, 1, Some("http 10.0.0.1")), (3, 1, None)]);
    let row = found(&harness, 1).unwrap();
    let by = (row.cancelled_by.as_deref(), row.cancelled_at);
    assert_eq!(by, (Some("http 10.0.0.1"), Some(Timestamp(5_000))));
    assert_eq!(found(&harness, 3).unwrap().cancelled_by, None);
    harness.commit(vec![ended(2, State::Cancelled, None), batch_ended(1, 2)]);
    assert_eq!(found(&harness, 1).unwrap().cancelled_by.as_deref(), Some("http 10.0.0.1"));
    harness.refused(vec![cancelled(1)]);
}

pub(in crate::store) fn failures_of_a_batch_are_counted_by_their_last_outcome(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let members = (1..=5).map(|job| member(job, 1));
    let on_workers = (1..=4).flat_map(|job| [assigned(job, job), started(job, job)]);
    let new = [worker(1, "w1"), new_batch(1, 5, None)].into_iter().chain(members).chain(on_workers);
    harness.commit(new.collect());
    let fails = |job, outcome| ended(job, State::Failed, Some(closed(job, job, outcome)));
    harness.commit(vec![
        fails(1, Outcome::TimedOut),
        fails(2, Outcome::Failed),
        fails(3, Outcome::TimedOut),
        succeeded(4, 4),
        ended(5, State::Expired, None),
        added(6),
        assigned(6, 6),
        started(6, 6),
        fails(6, Outcome::OomKilled),
    ]);
    let outcomes = |first| harness.archive().batch_failures(JobId(first), 1).unwrap().outcomes;
    assert_eq!(outcomes(1), [(Outcome::TimedOut, 2), (Outcome::Failed, 1)]);
    assert_eq!(outcomes(6), [], "it is no batch");
}

pub(in crate::store) fn a_batch_is_kept_as_long_as_its_last_member(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![
        new_batch(1, 2, None),
        member(1, 1),
        member(2, 1),
        ended_at(1, State::Cancelled, 5_000),
        ended_at(2, State::Succeeded, 9_000),
        batch_ended(1, 2),
    ]);
    let until = |instant| RetentionCutoffs { ended_since: Timestamp(instant), ..KEEP };
    assert_eq!(harness.remove_all(until(6_000)), 1);
    let row = found(&harness, 1).unwrap();
    let counts = BatchCounts { succeeded: 1, cancelled: 1, ..BatchCounts::default() };
    assert_eq!((row.removed, row.counts, row.state), (1, counts, BatchState::Cancelled));
    assert_eq!(harness.remove_all(until(10_000)), 1);
    assert_eq!(found(&harness, 1), None);
}

pub(in crate::store) fn batches_are_listed_by_name_and_state(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![new_batch(1, 1, Some("nightly")), member(1, 1)]);
    harness.commit(vec![ended(1, State::Cancelled, None), batch_ended(1, 1)]);
    harness.commit(vec![new_batch(2, 1, Some("nightly")), member(2, 2), new_batch(3, 1, None), member(3, 3)]);
    harness.commit(vec![ended(3, State::Expired, None), batch_ended(3, 1)]);
    let list = |filter: BatchFilter| {
        let found = harness.archive().batches(&BatchFilter { limit: 2, ..filter }).unwrap();
        found.iter().map(|row| row.first.0).collect::<Vec<_>>()
    };
    let none = BatchFilter::default;
    assert_eq!(list(none()), [3, 2]);
    assert_eq!(list(BatchFilter { before: Some(JobId(2)), ..none() }), [1]);
    assert_eq!(list(BatchFilter { name: Some("nightly".into()), ..none() }), [2, 1]);
    assert_eq!(
        list(BatchFilter { states: vec![BatchState::Waiting, BatchState::Cancelled], ..none() }),
        [2, 1]
    );
    assert_eq!(list(BatchFilter { states: vec![BatchState::Failed], ..none() }), [3]);
    for (pattern, expected) in [("night*", &[2, 1][..]), ("*", &[2, 1]), ("*t?y", &[]), ("n*l[y]", &[])] {
        assert_eq!(list(BatchFilter { name: Some(pattern.into()), ..none() }), expected, "{pattern}");
    }
    assert_eq!(found(&harness, 2).unwrap().name.as_deref(), Some("nightly"));
}

pub(in crate::store) fn a_batch_names_the_definitions_at_its_ends(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let member_of = |number: u64, batch: u64, revision: u128| {
        Change::Added(AddedJob { batch: Some(JobId(batch)), revision: Revision(revision), ..job(number) })
    };
    harness.commit(vec![
        new_batch(1, 3, None),
        member_of(1, 1, 1),
        member_of(2, 1, 2),
        member_of(3, 1, 2),
        new_batch(4, 2, None),
        member_of(4, 4, 2),
        member_of(5, 4, 2),
    ]);
    let named = |harness: &Harness<'_>, first| {
        let row = found(harness, first).unwrap();
        (row.definition.unwrap(), row.definitions_differ)
    };
    let [one, two] = [1, 2].map(|number| definition(number).name.to_string());
    assert_eq!(named(&harness, 1), (one.clone(), true));
    assert_eq!(named(&harness, 4), (two.clone(), false));
    // The first member stays the first one when it ends before the others, and when it is in another table than the last one.
    harness.commit(vec![ended_at(1, State::Succeeded, 5_000), ended_at(4, State::Cancelled, 9_000)]);
    assert_eq!(named(&harness, 1), (one, true));
    assert_eq!(named(&harness, 4), (two.clone(), false));
    let ends = [2, 3].map(|job| ended_at(job, State::Succeeded, 9_000));
    harness.commit(ends.into_iter().chain([batch_ended(1, 3)]).collect());
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(6_000), ..KEEP }), 1);
    assert_eq!(named(&harness, 1), (two, false), "of the members that are kept");
}

pub(in crate::store) fn a_hidden_batch_is_not_shown_and_goes_with_its_members(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let forming = Change::PendingBatch { first: JobId(1), last: JobId(3) };
    harness.commit(vec![forming.clone(), new_batch(1, 3, None), member(1, 1)]);
    assert_eq!(found(&harness, 1), None);
    assert_eq!(harness.archive().batches(&BatchFilter { limit: 9, ..BatchFilter::default() }).unwrap(), []);
    assert_eq!(harness.restart().0.batches, []);
    let forming = Change::PendingBatch { first: JobId(4), last: JobId(5) };
    harness.commit(vec![forming, new_batch(4, 2, None), member(4, 4)]);
    harness.commit(vec![member(5, 4), Change::BatchCompleted { first: JobId(4) }]);
    assert_eq!(found(&harness, 4).unwrap().counts.queued, 2);
}

pub(in crate::store) fn a_batch_and_its_retry_name_each_other(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let retry = |first: u64, of: u64| {
        let options = BatchOptions { retry_of: Some(JobId(of)), ..BatchOptions::default() };
        Change::BatchAdded(NewBatch { first: JobId(first), count: 1, options, created_at: Timestamp(1_000) })
    };
    harness.commit(vec![new_batch(1, 1, None), member(1, 1)]);
    harness.commit(vec![ended_at(1, State::Failed, 5_000), batch_ended(1, 1)]);
    harness.commit(vec![retry(2, 1), member(2, 2), retry(3, 1), member(3, 3)]);
    // Nobody sees it before its last member.
    harness.commit(vec![Change::PendingBatch { first: JobId(4), last: JobId(4) }, retry(4, 1), member(4, 4)]);
    let names = |harness: &Harness<'_>, first| {
        let row = found(harness, first).unwrap();
        (row.retry_of.map(|of| of.0), row.retried_as.map(|by| by.0))
    };
    assert_eq!(
        [1, 2, 3].map(|first| names(&harness, first)),
        [(None, Some(3)), (Some(1), None), (Some(1), None)]
    );
    harness.restart();
    assert_eq!(names(&harness, 1), (None, Some(3)));
    assert_eq!(harness.remove_all(RetentionCutoffs { ended_since: Timestamp(6_000), ..KEEP }), 1);
    assert_eq!(names(&harness, 3), (None, None), "the first one is not kept any more");
}
