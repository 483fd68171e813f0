//! Stories of groups, epochs, refusals and what a restart finds of them.

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{ClusterId, Fence, JobId, Nonce, Revision, Timestamp, Token, WorkerId};
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Change, ClosedAttempt, Ended, Note};

use super::Backend;
use super::harness::*;
use crate::store::{CommitError, JobFilter};

pub(in crate::store) fn a_fresh_store_is_empty_and_keeps_its_installation(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let (first, live) = harness.restart();
    assert!(live.is_empty() && first.workers.is_empty() && harness.definitions.is_empty());
    assert_ne!(first.cluster, ClusterId(0));
    assert_eq!((first.last_job, first.last_fence, first.group), (JobId(0), Fence(0), GroupNo(0)));
    let (second, _) = harness.restart();
    assert_eq!(second.cluster, first.cluster);
    assert!(second.epoch > first.epoch);
    assert_eq!(harness.archive().job(JobId(1)).unwrap(), None);
    assert_eq!(harness.archive().definition(Revision(1)).unwrap(), None);
}

pub(in crate::store) fn a_group_that_was_committed_is_left_alone(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let group = harness.group(vec![added(1)]);
    harness.commit_group(&group).unwrap();
    harness.commit_group(&group).expect("its result was not known, so it is tried again");
    harness.group = group.number;
    assert_eq!(harness.list(JobFilter::default()), [1]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.group, group.number);
}

pub(in crate::store) fn an_older_epoch_is_fenced(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let old = harness.group(vec![added(1)]);
    harness.restart();
    assert!(
        matches!(harness.commit_group(&old), Err(CommitError::EpochReplaced { ours }) if ours == old.epoch)
    );
    assert!(harness.list(JobFilter::default()).is_empty());
}

pub(in crate::store) fn whatever_contradicts_the_rows_is_refused_and_changes_nothing(
    backend: &mut dyn Backend,
) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![
        added(1),
        added(2),
        assigned(2, 1),
        added(3),
        assigned(3, 2),
        started(3, 2),
        added(4),
    ]);
    harness.commit(vec![ended(4, State::Expired, None)]);
    let wrong = |job, fence| ClosedAttempt {
        token: Token { nonce: Nonce(1), ..token(job, fence) },
        ..closed(job, fence, Outcome::Succeeded)
    };
    let unknown = AddedJob { revision: Revision(99), ..job(10) };
    for (why, change) in [
        ("given twice", added(1)),
        ("a number of an ended job", added(4)),
        ("no such definition", Change::Added(unknown)),
        ("not queued", assigned(2, 9)),
        ("no such job", assigned(77, 9)),
        ("not scheduled", Change::BecameDue { job: JobId(1) }),
        ("not held back", Change::QuarantineReleased { job: JobId(1) }),
        ("another fence", started(2, 9)),
        ("started before", started(3, 2)),
        ("nothing to stop", stopping(1, 1, StopCause::Cancel)),
        ("another nonce", ended(3, State::Succeeded, Some(wrong(3, 2)))),
        ("it has an attempt", ended(3, State::Cancelled, None)),
        ("it has no attempt", ended(1, State::Succeeded, Some(closed(1, 1, Outcome::Succeeded)))),
        ("it has ended", ended(4, State::Cancelled, None)),
        ("it has ended", assigned(4, 9)),
        ("another nonce", waiting(wrong(3, 2), State::Queued)),
    ] {
        let refusal = harness.refused(vec![added(11), change]);
        assert!(refusal.contains("expected") || refusal.contains("never stored"), "{why}: {refusal}");
        assert_eq!(harness.list(JobFilter::default()), [4, 3, 2, 1], "{why}: all of the group or nothing");
    }
    let states: Vec<_> = harness.restart().1.iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Queued, State::Assigned, State::Running]);
    harness.commit(vec![added(11)]);
}

pub(in crate::store) fn the_same_end_twice_changes_nothing(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), assigned(1, 1), started(1, 1)]);
    harness.commit(vec![succeeded(1, 1)]);
    let before = harness.archive().job(JobId(1)).unwrap();
    let later = Change::Ended(Ended {
        job: JobId(1),
        state: State::Succeeded,
        at: Timestamp(8_000),
        reason: String::new(),
        closed: Some(closed(1, 1, Outcome::Succeeded)),
        confirmed: true,
    });
    harness.commit(vec![later]);
    assert_eq!(harness.archive().job(JobId(1)).unwrap(), before);
    harness.refused(vec![ended(1, State::Failed, Some(closed(1, 1, Outcome::Failed)))]);
}

pub(in crate::store) fn a_cancel_is_confirmed_once_by_its_own_worker(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let given_up = |job: u64, fence| {
        let Change::Ended(it) = ended(job, State::Cancelled, Some(closed(job, fence, Outcome::Lost))) else {
            unreachable!("it is one")
        };
        Change::Ended(Ended { confirmed: false, ..it })
    };
    let confirmed =
        |token, worker| Change::ContainerGone { token, worker: WorkerId(worker), at: Timestamp(9_000) };
    let other_definition = AddedJob { revision: Revision(2), ..job(3) };
    harness.commit(vec![
        worker(1, "w1"),
        worker(2, "w2"),
        added(1),
        added(2),
        Change::Added(other_definition),
    ]);
    harness.commit(vec![assigned_as(1, 1, 1, 1), assigned_as(2, 2, 1, 1), assigned_as(3, 3, 1, 2)]);
    harness.commit(vec![given_up(1, 1), succeeded(2, 2), given_up(3, 3)]);
    let (loaded, live) = harness.restart();
    assert!(live.is_empty());
    let doubts: Vec<_> = loaded.unconfirmed.iter().map(|it| (it.token, it.worker.0, it.revision.0)).collect();
    assert_eq!(doubts, [(token(1, 1), 1, 1), (token(3, 3), 2, 2)]);
    assert_eq!(harness.definitions.len(), 2, "they are needed to know what would have run them");
    let unknown = Token { nonce: Nonce(1), ..token(1, 1) };
    harness.commit(vec![
        confirmed(unknown, 1),
        confirmed(token(1, 1), 2),
        confirmed(token(2, 2), 1),
        confirmed(token(77, 7), 1),
    ]);
    let is_confirmed = |harness: &Harness<'_>| {
        [1, 2, 3].map(|job| harness.archive().job(JobId(job)).unwrap().unwrap().row.confirmed)
    };
    assert_eq!(is_confirmed(&harness), [false, true, false]);
    harness.commit(vec![confirmed(token(1, 1), 1)]);
    harness.commit(vec![confirmed(token(1, 1), 1)]);
    assert_eq!(is_confirmed(&harness), [true, true, false]);
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    let note = Note::ContainerGone { token: token(1, 1), worker: WorkerId(1) };
    assert_eq!(record.notes, [(Timestamp(9_000), note)], "once");
    assert_eq!((record.row.state, record.row.ended_at), (State::Cancelled, Some(Timestamp(5_001))));
    assert_eq!(harness.archive().job(JobId(2)).unwrap().unwrap().notes, []);
    assert_eq!(harness.restart().0.unconfirmed.len(), 1);
}

pub(in crate::store) fn every_lost_attempt_is_in_doubt_until_its_worker_says_that_it_is_gone(
    backend: &mut dyn Backend,
) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1"), worker(2, "w2"), added(1), added(2)]);
    let lost = |job: u64, fence| waiting(closed(job, fence, Outcome::Lost), State::Queued);
    harness.commit(vec![assigned_as(1, 1, 1, 1), lost(1, 1), assigned_as(1, 2, 2, 2), lost(1, 2)]);
    harness.commit(vec![assigned_as(2, 3, 1, 1), lost(2, 3), assigned_as(2, 4, 2, 2)]);
    let doubts = |harness: &mut Harness<'_>| {
        let (loaded, live) = harness.restart();
        let live =
            live.iter().map(|it| it.lost.iter().map(|(token, worker)| (token.fence.0, worker.0)).collect());
        let ended = loaded.unconfirmed.iter().map(|it| (it.token.fence.0, it.worker.0)).collect();
        (live.collect::<Vec<Vec<_>>>(), ended)
    };
    assert_eq!(doubts(&mut harness), (vec![vec![(1, 1), (2, 2)], vec![(3, 1)]], vec![]));

    let gone = |job, fence, worker| {
        let note = Note::ContainerGone { token: token(job, fence), worker: WorkerId(worker) };
        Change::Noted { job: JobId(job), at: Timestamp(6_000), note }
    };
    let Change::Ended(it) = ended(2, State::Cancelled, Some(closed(2, 4, Outcome::Cancelled))) else {
        return;
    };
    harness.commit(vec![gone(1, 2, 2), Change::Ended(Ended { confirmed: false, ..it })]);
    assert_eq!(doubts(&mut harness), (vec![vec![(1, 1)]], vec![(3, 1)]), "not of what had its own end");

    let confirmed = Change::ContainerGone { token: token(2, 3), worker: WorkerId(1), at: Timestamp(7_000) };
    harness.commit(vec![gone(1, 1, 1), confirmed]);
    assert_eq!(doubts(&mut harness), (vec![vec![]], vec![]));
    assert!(harness.archive().job(JobId(2)).unwrap().unwrap().row.confirmed);
}
