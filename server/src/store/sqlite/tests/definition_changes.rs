//! The history of the definitions in the store.

use super::*;
use crate::store::{
    ChangedNames, DefinitionArchive as _, DefinitionChange, DefinitionChangeRow, DeployIntent, LastLoad,
    LoadCause, LoadedSet, RecordChange,
};

fn row(number: i64) -> DefinitionChangeRow {
    let names: Vec<String> = (0..number).map(|number| format!("job-{number}")).collect();
    DefinitionChangeRow {
        id: 0,
        at: Timestamp(number),
        cause: LoadCause::Deploy,
        by: Some("ci".to_owned()),
        reason: Some("merge request 41".to_owned()),
        before: (number > 1).then_some(Revision(7)),
        after: Revision(u128::MAX),
        added: ChangedNames::of(&names),
        changed: ChangedNames::default(),
        removed: ChangedNames::of(&["gone".to_owned()]),
        policy_changed: number > 1,
    }
}

fn loaded_set() -> LoadedSet {
    LoadedSet {
        program: "1".to_owned(),
        revision: "2".to_owned(),
        policy: "3".to_owned(),
        definitions: std::iter::empty().collect(),
    }
}

fn loaded(row: Option<DefinitionChangeRow>, rows_max: u64) -> DefinitionChange {
    DefinitionChange::Loaded { row: row.map(Box::new), loaded: loaded_set(), rows_max }
}

#[test]
fn rows_are_read_as_they_were_written_and_the_oldest_go() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let start = store.load(&mut |_| {}).unwrap();
    let mut write = |change| store.change_record(start.epoch, &RecordChange::Definitions(change)).unwrap();
    for number in 1..=5 {
        write(loaded(Some(row(number)), 3));
    }
    let expected = |id: u64| DefinitionChangeRow { id, ..row(id.cast_signed()) };
    assert_eq!(archive.definition_changes(u64::MAX, 10).unwrap(), [5, 4, 3].map(expected));
    assert_eq!(archive.definition_changes(5, 1).unwrap(), [expected(4)]);
    write(loaded(None, 3));
    assert_eq!(archive.definition_changes(u64::MAX, 10).unwrap().len(), 3);
    // A row is small, however many definitions a load changes.
    write(loaded(Some(row(1_000)), 0));
    let rows = archive.definition_changes(u64::MAX, 10).unwrap();
    assert_eq!((rows.len(), rows[0].id), (1, 6), "the newest one stays, so numbers grow");
    assert_eq!((rows[0].added.names.len(), rows[0].added.more), (100, 900));
}

#[test]
fn an_intent_of_a_deploy_ends_with_the_next_load_or_its_refusal() {
    let data_dir = TestDataDir::new();
    let (mut store, archive) = data_dir.open();
    let start = store.load(&mut |_| {}).unwrap();
    let mut write = |change| store.change_record(start.epoch, &RecordChange::Definitions(change)).unwrap();
    assert_eq!(archive.last_load().unwrap(), LastLoad::default());
    let intent = DeployIntent { by: Some("ci".to_owned()), reason: None, after: "4".to_owned() };
    for end in [DefinitionChange::NotDeployed, loaded(None, 3), loaded(Some(row(1)), 3)] {
        write(DefinitionChange::Deploying(intent.clone()));
        assert_eq!(archive.last_load().unwrap().deploying, Some(intent.clone()));
        write(end);
        assert_eq!(archive.last_load().unwrap().deploying, None);
    }
    assert_eq!(archive.last_load().unwrap().loaded, Some(loaded_set()));
}
