//! Stories of unique keys.

use protocol::{JobId, Timestamp};
use scheduler::job::State;
use scheduler::step::Change;
use scheduler::unique::{UniqueHolder, UniqueId, UniqueRow};

use super::Backend;
use super::harness::*;
use crate::store::{JobFilter, RetentionCutoffs};

fn row(key: &str, holder: Option<(u64, Option<u64>)>) -> UniqueRow {
    let holder = holder.map(|(job, before)| UniqueHolder { job: JobId(job), predecessor: before.map(JobId) });
    UniqueRow { id: UniqueId { definition: "resize".into(), key: key.into() }, holder }
}

fn taken(key: &str, job: u64, before: Option<u64>) -> Change {
    Change::Unique(row(key, Some((job, before))))
}

pub(in crate::store) fn unique_keys_are_kept_until_they_are_freed(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![Change::Added(job(1)), taken("a", 1, None)]);
    harness.commit(vec![
        Change::Added(job(2)),
        taken("", 2, None),
        Change::Added(job(3)),
        taken("a", 3, Some(1)),
    ]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.unique, [row("", Some((2, None))), row("a", Some((3, Some(1))))]);
    // Of several changes in one group the last one counts.
    harness.commit(vec![taken("a", 3, None), Change::Unique(row("", None)), Change::Unique(row("a", None))]);
    harness.commit(vec![taken("", 2, None)]);
    let (loaded, _) = harness.restart();
    assert_eq!(loaded.unique, [row("", Some((2, None)))]);
}

pub(in crate::store) fn an_ended_job_is_not_removed_while_it_keeps_its_key(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![Change::Added(job(1)), taken("a", 1, None), Change::Added(job(2))]);
    harness.commit(vec![ended_at(1, State::Failed, 5_000), ended_at(2, State::Cancelled, 6_000)]);
    let old = RetentionCutoffs { ended_since: Timestamp(9_000), ..KEEP };
    assert_eq!(harness.remove_all(old), 1);
    assert_eq!(harness.list(JobFilter::default()), [1]);
    harness.restart();
    assert_eq!(harness.remove_all(old), 0);
    harness.commit(vec![Change::Unique(row("a", None))]);
    assert_eq!(harness.remove_all(old), 1);
    assert!(harness.list(JobFilter::default()).is_empty());
}
