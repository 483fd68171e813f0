//! Comparison of the sets of two starts, and rows while the store takes none.

use std::sync::Arc;

use super::*;
use crate::catalogue::Definitions;
use crate::config::jobs_file;
use crate::store::{EntryHashes, LoadedSet, sqlite};

fn definitions(text: &str) -> Definitions {
    let file = jobs_file::parse(text, std::path::Path::new("jobs.yaml"), &std::iter::empty().collect());
    Definitions::new(file.expect("a good file").definitions)
}

/// Keys that are no part of the revision: a schedule, a description.
const OLD: &str =
    "jobs: { a: { runtime: fake }, b: { runtime: fake, description: old }, c: { runtime: fake } }";
const NEW: &str = "jobs: { a: { runtime: fake, timeout: 1m }, b: { runtime: fake, description: new }, d: { runtime: fake } }";

fn between(before: &LoadedSet, after: &LoadedSet) -> [Vec<String>; 3] {
    let change = since_last_load(Some(before), after, Revision(0));
    [change.added, change.changed, change.removed]
}

#[test]
fn a_start_finds_each_other_key_and_after_an_upgrade_those_that_belong_to_the_revision() {
    let (old, new) = (loaded_set(&definitions(OLD)), loaded_set(&definitions(NEW)));
    let names =
        |names: [&[&str]; 3]| names.map(|names| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert_eq!(between(&old, &new), names([&["d"], &["a", "b"], &["c"]]));
    assert_eq!(between(&new, &new), names([&[], &[], &[]]));
    // Another build hashes the same keys to other values.
    let other_build = |hashes: EntryHashes| EntryHashes { all: format!("other {}", hashes.all), ..hashes };
    let former = LoadedSet {
        program: "another build".to_owned(),
        definitions: old.definitions.into_iter().map(|(name, it)| (name, other_build(it))).collect(),
        ..old
    };
    assert_eq!(between(&former, &new), names([&["d"], &["a"], &["c"]]));
}

#[tokio::test]
async fn a_row_that_the_store_does_not_take_waits_and_its_requester_is_told() {
    let (_store, archive) = sqlite::temporary();
    let history = Arc::new(DefinitionHistory::new(archive, RecordWriter::closed()));
    let (old, new) = (definitions(OLD), definitions(NEW));
    let origin = LoadOrigin::without_request(LoadCause::Watch);
    let change = Reloaded::between(&old, &new);
    let first = history.record_load(&origin, old.revision(), &change, &new);
    let second = history.record_load(&origin, new.revision(), &change, &old);
    assert!(!history.write_waiting().await);
    assert!(!first.succeeded().await);
    assert_eq!(history.waiting().len(), 2, "none is lost, and their order stays");
    assert!(!history.write_waiting().await, "it is tried again");
    drop(second);
    history
        .begin_deploy(&origin, new.revision())
        .await
        .expect_err("a deploy that cannot be recorded does not begin");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_store_holds_up_no_load_and_refuses_a_deploy_in_time() {
    let (_store, archive) = sqlite::temporary();
    let (writer, _stalled) = RecordWriter::stalled();
    let history = Arc::new(DefinitionHistory::new(archive, writer));
    let (old, new) = (definitions(OLD), definitions(NEW));
    let origin = LoadOrigin::without_request(LoadCause::Deploy);
    let refused = history.begin_deploy(&origin, new.revision()).await;
    assert!(matches!(refused, Err(HistoryError::Busy)), "{refused:?}");
    let row = history.record_load(&origin, old.revision(), &Reloaded::between(&old, &new), &new);
    let mut warnings = Vec::new();
    warn_if_unwritten(Some(row), &mut warnings).await;
    assert_eq!(warnings, [NOT_IN_HISTORY]);
}

#[tokio::test(start_paused = true)]
async fn a_deploy_that_gave_up_does_not_take_back_the_intent_of_the_next_one() {
    let (_store, archive) = sqlite::temporary();
    let (writer, store) = RecordWriter::stalled();
    let history = Arc::new(DefinitionHistory::new(archive, writer));
    let (old, new) = (definitions(OLD), definitions(NEW));
    let origin = LoadOrigin::without_request(LoadCause::Deploy);
    // The first deploy waits for this row.
    drop(history.record_load(&origin, old.revision(), &Reloaded::between(&old, &new), &new));
    let refused = history.begin_deploy(&origin, old.revision()).await;
    assert!(matches!(refused, Err(HistoryError::Busy)), "{refused:?}");
    let mut taken = Vec::new();
    let second = history.begin_deploy(&origin, new.revision());
    let store_recovers = async {
        loop {
            taken.extend(store.take_one());
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        begun = second => begun.expect("the store takes it"),
        () = store_recovers => {}
    }
    while let Some(change) = {
        tokio::time::sleep(Duration::from_millis(1)).await;
        store.take_one()
    } {
        taken.push(change);
    }
    let expected = new.revision().to_string();
    assert!(
        matches!(taken.last(), Some(RecordChange::Definitions(DefinitionChange::Deploying(intent))) if intent.after == expected),
        "{taken:?}"
    );
}

#[tokio::test]
async fn memory_is_bounded() {
    let (_store, archive) = sqlite::temporary();
    let history = DefinitionHistory::new(archive, RecordWriter::closed());
    let set = definitions("jobs: { a: { runtime: fake } }");
    for number in 0..WAITING_MAX as u64 + 5 {
        let before = Revision(number.into());
        let origin = LoadOrigin::without_request(LoadCause::Watch);
        drop(history.record_load(&origin, before, &Reloaded::default(), &set));
    }
    assert_eq!(history.waiting().len(), WAITING_MAX);
}

#[test]
fn a_reason_comes_before_the_effect_in_the_audit_log() {
    let origin =
        LoadOrigin { reason: Some(Arc::from("commit 1")), ..LoadOrigin::without_request(LoadCause::Reload) };
    assert_eq!(origin.after_reason("added a".to_owned()), "reason: commit 1; added a");
}
