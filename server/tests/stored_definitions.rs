//! Rows of definitions as earlier versions have written them. They can still be read, and the same file still makes the same rows: jobs
//! refer to them by revision, which is the hash of a row's text.
//!
//! `LONGSHORE_BLESS=1` adds the rows of new definitions of `stored_definitions/jobs.yaml`. It changes no row that is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use longshore_server::config::jobs_file::{Environment, load, parse_stored};
use longshore_server::store::StoredDefinition;
use protocol::Revision;

/// The entry of each definition with its revision, by name.
type Rows = BTreeMap<String, (String, String)>;

#[test]
fn a_file_makes_the_rows_that_it_made_before_and_they_are_read_back() {
    let loaded =
        load(&place("jobs.yaml"), &Environment::default()).unwrap_or_else(|faults| panic!("{faults}"));
    let mut before: Rows = fs::read(place("rows.json")).map_or_else(|_| Rows::new(), |text| parse(&text));
    if std::env::var_os("LONGSHORE_BLESS").is_some() {
        for entry in &loaded.definitions {
            let row = (format!("{:032x}", entry.stored.revision.0), entry.stored.entry.clone());
            before.entry(entry.stored.name.clone()).or_insert(row);
        }
        let text = serde_json::to_string_pretty(&before).expect("JSON") + "\n";
        fs::write(place("rows.json"), text).expect("the rows are written");
    }
    assert_eq!(before.len(), loaded.definitions.len(), "the file and its rows have the same names");
    for entry in &loaded.definitions {
        let name = &entry.stored.name;
        let (revision, text) = &before[name];
        assert_eq!(entry.stored.entry, *text, "{name}: the row of the same definition is another one");
        let revision = Revision(u128::from_str_radix(revision, 16).expect("hexadecimal"));
        assert_eq!(entry.stored.revision, revision, "{name}");
        let row = StoredDefinition { revision, name: name.clone(), entry: text.clone() };
        let read = parse_stored(&row).unwrap_or_else(|damaged| panic!("{damaged}"));
        let mut expected = (*entry.definition).clone();
        // These belong to the name and are not stored with the revision.
        (expected.expect, expected.timetable) = Default::default();
        assert_eq!(read, expected, "{name}");
    }
}

fn parse(text: &[u8]) -> Rows {
    serde_json::from_slice(text).expect("rows")
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored_definitions").join(name)
}
