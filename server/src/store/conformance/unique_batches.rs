//! Stories of batches with unique keys.

use protocol::{JobId, Timestamp};
use scheduler::batches::{BatchOptions, BatchUnique, MayReplace, NewBatch};
use scheduler::job::State;
use scheduler::limits::rules::OnDuplicate;
use scheduler::step::Change;

use super::Backend;
use super::batches::{batch_ended, found, member};
use super::harness::*;
use crate::store::BatchFilter;

/// A batch of one job that replaces others.
fn keyed(first: u64, key: &str) -> Change {
    let unique = BatchUnique {
        key: key.into(),
        on_duplicate: OnDuplicate::Replace,
        may_replace: MayReplace::Only(JobId(7)),
    };
    let options = BatchOptions { unique: Some(unique), ..BatchOptions::default() };
    Change::BatchAdded(NewBatch { first: JobId(first), count: 1, options, created_at: Timestamp(1_000) })
}

fn replaced(first: u64, by: u64) -> Change {
    Change::BatchReplaced { first: JobId(first), by: JobId(by) }
}

fn holder(harness: &Harness<'_>, key: &str) -> Option<u64> {
    harness.archive().batch_with_key(key).unwrap().map(|first| first.0)
}

fn with_key(harness: &Harness<'_>, key: &str) -> Vec<u64> {
    let filter = BatchFilter { unique_key: Some(key.to_owned()), limit: 10, ..BatchFilter::default() };
    harness.archive().batches(&filter).unwrap().iter().map(|row| row.first.0).collect()
}

pub(in crate::store) fn a_batch_has_its_unique_key_until_it_ends_or_is_replaced(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    harness.commit(vec![keyed(1, "main"), member(1, 1), keyed(2, "release"), member(2, 2)]);
    assert_eq!((holder(&harness, "main"), holder(&harness, "other")), (Some(1), None));
    harness.refused(vec![replaced(9, 1)]);
    harness.commit(vec![keyed(3, "main"), member(3, 3), replaced(1, 3)]);
    assert_eq!(holder(&harness, "main"), Some(3));
    let (loaded, _) = harness.restart();
    let keys: Vec<_> = loaded.batches.iter().map(|it| (it.first.0, it.unique_key.as_deref())).collect();
    assert_eq!(keys, [(1, None), (2, Some("release")), (3, Some("main"))]);
    let row = found(&harness, 1).unwrap();
    assert_eq!((row.unique_key.as_deref(), row.replaced_by), (Some("main"), Some(JobId(3))));
    assert_eq!(row.on_duplicate, Some(OnDuplicate::Replace));
    harness.commit(vec![ended(1, State::Cancelled, None), batch_ended(1, 1)]);
    assert_eq!(holder(&harness, "main"), Some(3), "the end of the one that was replaced frees nothing");
    harness.commit(vec![ended(3, State::Cancelled, None), batch_ended(3, 1)]);
    assert_eq!((holder(&harness, "main"), holder(&harness, "release")), (None, Some(2)));
    assert_eq!((with_key(&harness, "main"), with_key(&harness, "mai*")), (vec![3, 1], vec![]));
    harness.refused(vec![replaced(3, 2)]);
}
