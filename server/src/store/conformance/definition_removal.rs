//! Stories of ended jobs beyond the limits of their own definition.

use std::collections::BTreeMap;

use protocol::{JobId, Revision, Timestamp, WorkerId};
use scheduler::batches::{BatchOptions, NewBatch};
use scheduler::dependencies::{DependencyRow, PredecessorId, RequiredEnd};
use scheduler::job::State;
use scheduler::run_on::{MemberPlan, MemberRow, ParentCounts, ParentRow};
use scheduler::step::{AddedJob, Change};
use scheduler::unique::{UniqueHolder, UniqueId, UniqueRow};

use super::Backend;
use super::harness::*;
use crate::store::{DefinitionCutoffs, DefinitionRemoval, JobFilter, Removed, RetentionCutoffs};

const HOUR: i64 = 3_600_000;

/// Without limits.
fn rule(definition: &str) -> DefinitionCutoffs {
    DefinitionCutoffs {
        definition: definition.into(),
        ended_since: Timestamp(i64::MIN),
        ended_max: None,
        failed_since: None,
    }
}

fn newest(definition: &str, max: u64) -> DefinitionCutoffs {
    DefinitionCutoffs { ended_max: Some(max), ..rule(definition) }
}

fn removal(rules: &[DefinitionCutoffs], now: i64) -> DefinitionRemoval {
    DefinitionRemoval {
        definitions: rules.iter().cloned().collect(),
        kept_since: Timestamp(i64::MAX),
        now: Timestamp(now),
        rows_max: 100,
    }
}

fn remove_all(harness: &mut Harness<'_>, removal: &DefinitionRemoval) -> u64 {
    let mut jobs = 0;
    // A step that neither deletes nor ends would go on for ever.
    for _ in 0..10_000 {
        let removed = harness.remove_by_definition(removal);
        jobs += removed.jobs;
        if !removed.more {
            return jobs;
        }
    }
    panic!("retention does not come to its end");
}

fn remove(harness: &mut Harness<'_>, rules: &[DefinitionCutoffs]) -> u64 {
    remove_all(harness, &removal(rules, 0))
}

/// A job of "mail"; those of the harness are of "resize".
fn mail(number: u64) -> Change {
    Change::Added(AddedJob { revision: Revision(2), ..job(number) })
}

fn all(harness: &Harness<'_>) -> Vec<u64> {
    harness.list(JobFilter::default())
}

pub(in crate::store) fn a_definition_keeps_its_newest_jobs_only(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=6).map(added).chain((7..=9).map(mail)).collect());
    // Their order is that of their ends.
    for (number, at) in [(3, 100), (1, 200), (7, 250), (6, 300), (8, 350), (2, 400), (5, 500)] {
        harness.commit(vec![ended_at(number, State::Cancelled, at)]);
    }
    assert_eq!(remove(&mut harness, &[newest("resize", 5), newest("unheard-of", 0)]), 0);
    assert_eq!(remove(&mut harness, &[newest("resize", 2)]), 3);
    assert_eq!(all(&harness), [9, 8, 7, 5, 4, 2], "4 and 9 have not ended, and 7 is of another definition");
    harness.restart();
    assert_eq!(remove(&mut harness, &[newest("resize", 2)]), 0, "the count outlives a restart");
    let young = DefinitionRemoval { kept_since: Timestamp(350), ..removal(&[newest("mail", 1)], 0) };
    assert_eq!(remove_all(&mut harness, &young), 1);
    harness.commit(vec![ended_at(9, State::Succeeded, 600), ended_at(4, State::Failed, 600)]);
    let young = DefinitionRemoval { kept_since: Timestamp(350), ..young };
    assert_eq!(remove_all(&mut harness, &young), 0, "job 8 ended just now");
    assert_eq!(remove(&mut harness, &[newest("resize", 1), newest("mail", 1)]), 3);
    assert_eq!(all(&harness), [9, 4]);
}

pub(in crate::store) fn a_definition_keeps_its_jobs_for_its_own_time(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=4).map(added).chain([mail(5)]).collect());
    for number in 1..=5 {
        harness.commit(vec![ended_at(number, State::Succeeded, number.cast_signed() * 100)]);
    }
    let since = |at| DefinitionCutoffs { ended_since: Timestamp(at), ..rule("resize") };
    assert_eq!(remove(&mut harness, &[since(100)]), 0, "it ended just then");
    assert_eq!(remove(&mut harness, &[since(300)]), 2);
    assert_eq!(all(&harness), [5, 4, 3]);
    // A longer time keeps what is left, and the limits of the server hold beside it.
    assert_eq!(remove(&mut harness, &[since(0)]), 0);
    let server = RetentionCutoffs { ended_since: Timestamp(400), ..KEEP };
    assert_eq!(harness.remove_all(server), 1);
    assert_eq!(remove(&mut harness, &[since(1_000)]), 1);
    assert_eq!(all(&harness), [5]);
}

pub(in crate::store) fn bad_ends_have_an_age_of_their_own(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit((1..=6).map(added).collect());
    let states =
        [State::Failed, State::Succeeded, State::Lost, State::Cancelled, State::Expired, State::Succeeded];
    for (number, state) in (1..).zip(states) {
        harness.commit(vec![ended_at(number, state, number.cast_signed() * 100)]);
    }
    let apart = |failed_since| DefinitionCutoffs {
        failed_since: Some(Timestamp(failed_since)),
        ..newest("resize", 1)
    };
    assert_eq!(remove(&mut harness, &[apart(0)]), 2, "the number counts the others only");
    assert_eq!(all(&harness), [6, 5, 3, 1]);
    assert_eq!(remove(&mut harness, &[apart(301)]), 2);
    assert_eq!(all(&harness), [6, 5]);
    // Without an age of their own they are as the others.
    assert_eq!(remove(&mut harness, &[newest("resize", 1)]), 1);
    assert_eq!(all(&harness), [6]);
}

pub(in crate::store) fn the_newest_jobs_are_those_that_ended_last_in_all_blocks(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit([1, 2, 5_000, 5_001, 9_000].into_iter().map(added).collect());
    // A job of the first block runs longest; then the blocks take turns.
    for (number, at) in [(2, 100), (5_000, 200), (9_000, 300), (5_001, 400), (1, 500)] {
        harness.commit(vec![ended_at(number, State::Succeeded, at)]);
    }
    for (max, left) in
        [(4, vec![9_000, 5_001, 5_000, 1]), (3, vec![9_000, 5_001, 1]), (2, vec![5_001, 1]), (1, vec![1])]
    {
        assert_eq!(remove(&mut harness, &[newest("resize", max)]), 1);
        assert_eq!(all(&harness), left);
        harness.restart();
    }
}

pub(in crate::store) fn removal_by_definition_goes_in_steps_and_outlives_restarts(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let total = 5_000;
    harness.commit(
        (1..=total).map(|number| if number % 2 == 0 { mail(number) } else { added(number) }).collect(),
    );
    harness
        .commit((1..=total).map(|number| ended_at(number, State::Cancelled, number.cast_signed())).collect());
    let removal =
        DefinitionRemoval { rows_max: 300, ..removal(&[newest("resize", 10), newest("mail", 2_490)], 0) };
    let mut left = total;
    loop {
        let Removed { jobs, more, .. } = harness.remove_by_definition(&removal);
        assert!(jobs <= 300);
        left -= jobs;
        harness.restart();
        if !more {
            break;
        }
        assert!(jobs > 0, "each step gets on");
    }
    assert_eq!(left, 2_500);
    let newest = all(&harness);
    assert_eq!(newest[..20], (4_981..=5_000).rev().collect::<Vec<u64>>());
    assert_eq!(newest[20..].iter().filter(|number| *number % 2 == 1).count(), 0);
    // The server finds the rest where it is.
    let server = RetentionCutoffs { ended_max: 5, ..KEEP };
    assert_eq!(harness.remove_all(server), 2_495);
    assert_eq!(harness.remove_by_definition(&removal), Removed::default());
}

pub(in crate::store) fn jobs_that_something_refers_to_are_held(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let member = |number| Change::Added(AddedJob { batch: Some(JobId(1)), ..job(number) });
    let batch =
        NewBatch { first: JobId(1), count: 2, created_at: Timestamp(1), options: BatchOptions::default() };
    let key = |holder: Option<u64>| {
        let id = UniqueId { definition: "resize".into(), key: "k".into() };
        let holder = holder.map(|job| UniqueHolder { job: JobId(job), predecessor: None });
        Change::Unique(UniqueRow { id, holder })
    };
    let on = PredecessorId::Job(JobId(4));
    let waits = DependencyRow { job: JobId(5), on, requires: RequiredEnd::Any, ended: None };
    harness.commit(vec![
        Change::BatchAdded(batch),
        member(1),
        member(2),
        added(3),
        added(4),
        added(5),
        added(6),
        key(Some(3)),
    ]);
    harness.commit(vec![Change::Dependency(waits)]);
    harness.commit(vec![
        ended_at(1, State::Failed, 10),
        ended_at(3, State::Failed, 20),
        ended_at(4, State::Succeeded, 30),
        Change::Dependency(DependencyRow { ended: Some(State::Succeeded), ..waits }),
        ended_at(6, State::Succeeded, 40),
    ]);
    let one = [newest("resize", 1)];
    assert_eq!(
        remove(&mut harness, &one),
        0,
        "a batch, a key and a pipeline need the older ones; 6 is the newest"
    );
    harness.restart();
    let old = DefinitionCutoffs { ended_since: Timestamp(1_000), ..rule("resize") };
    assert_eq!(remove(&mut harness, std::slice::from_ref(&old)), 1, "nothing needs 6");
    assert_eq!(all(&harness), [5, 4, 3, 2, 1]);
    // They are let go: the batch has ended, the key is free, and the job that waited has ended.
    harness.commit(vec![
        ended_at(2, State::Succeeded, 50),
        Change::BatchEnded { first: JobId(1), count: 2, failed: 1, state: State::Failed, at: Timestamp(50) },
        key(None),
        ended_at(5, State::Succeeded, 60),
    ]);
    let four = [newest("resize", 4)];
    assert_eq!(remove_all(&mut harness, &removal(&four, HOUR)), 0, "they are looked at again after an hour");
    assert_eq!(remove_all(&mut harness, &removal(&four, HOUR + 1)), 1);
    assert_eq!(all(&harness), [5, 4, 3, 2]);
    assert_eq!(remove(&mut harness, &one), 3);
    assert_eq!(all(&harness), [5]);
    assert_eq!(remove(&mut harness, &[old]), 1);
}

pub(in crate::store) fn a_parent_with_its_members_counts_once(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    for first in [1_u64, 4, 7] {
        let row = ParentRow {
            job: JobId(first),
            plan: MemberPlan::All,
            is_complete: true,
            counts: ParentCounts::default(),
            started_at: None,
            cancelled_by: None,
        };
        let member = |job| MemberRow { job: JobId(job), parent: JobId(first), pinned: Some(WorkerId(job)) };
        harness.commit(vec![
            added(first),
            Change::Parent(row.clone()),
            Change::Member(member(first + 1)),
            added(first + 1),
            Change::Member(member(first + 2)),
            added(first + 2),
        ]);
        let at = first.cast_signed() * 100;
        harness.commit(vec![
            ended_at(first + 1, State::Succeeded, at),
            ended_at(first + 2, State::Failed, at + 1),
            Change::Parent(row),
            ended_at(first, State::Failed, at + 2),
        ]);
    }
    assert_eq!(remove(&mut harness, &[newest("resize", 3)]), 0);
    assert_eq!(remove(&mut harness, &[newest("resize", 2)]), 3);
    assert_eq!(all(&harness), [9, 8, 7, 6, 5, 4]);
    harness.restart();
    let old = DefinitionCutoffs { ended_since: Timestamp(402), ..rule("resize") };
    assert_eq!(remove(&mut harness, &[old]), 0, "members that ended earlier stay with their parent");
    let old = DefinitionCutoffs { ended_since: Timestamp(403), ..rule("resize") };
    assert_eq!(remove(&mut harness, &[old]), 3);
    assert_eq!(all(&harness), [9, 8, 7]);
}

pub(in crate::store) fn output_has_an_age_of_its_own(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![added(1), added(2), mail(3), added(4)]);
    harness.commit(vec![
        ended_at(1, State::Succeeded, 100),
        ended_at(2, State::Succeeded, 200),
        ended_at(3, State::Succeeded, 100),
    ]);
    let first = |ids: &[u64], since: &[(&str, i64)]| {
        let since: BTreeMap<_, _> =
            since.iter().map(|(name, at)| ((*name).to_owned(), Timestamp(*at))).collect();
        let ids: Vec<JobId> = ids.iter().copied().map(JobId).collect();
        harness.archive().first_with_output(&ids, &since).unwrap().map(|job| job.0)
    };
    assert_eq!(first(&[9, 1, 2], &[]), Some(1));
    assert_eq!(first(&[1, 2], &[("resize", 101)]), Some(2));
    assert_eq!(first(&[1, 2], &[("resize", 201)]), None);
    assert_eq!(first(&[1, 2, 4], &[("resize", 201)]), Some(4), "it has not ended");
    assert_eq!(first(&[1, 3], &[("resize", 201)]), Some(3));
}
