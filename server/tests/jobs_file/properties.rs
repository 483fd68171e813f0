//! No text makes the reader panic, another reader of YAML sees the same in every example, and no key is taken without being read.

use std::fs;
use std::path::Path;

use longshore_server::config::jobs_file::{FaultCode, load, parse, parse_stored, schema};
use proptest::prelude::*;
use proptest::sample::Index;
use scheduler::definition::{Definition, Expect};
use scheduler::schedule::Timetable;
use serde_json::Value;

use crate::support::{environment, fenced_yaml, repository, shipped_files};

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("jobs.yaml");
        fs::write(&file, bytes).expect("written");
        let _ = load(&file, &environment()).map_err(|faults| faults.to_string());
    }

    #[test]
    fn no_words_of_yaml_make_it_panic(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..60)) {
        check(&words.concat())?;
    }

    #[test]
    fn no_mutation_of_a_real_file_makes_it_panic(
        seed in any::<Index>(),
        mutations in proptest::collection::vec((any::<Index>(), any::<Index>(), proptest::sample::select(WORDS)), 1..6),
    ) {
        let seeds = seeds();
        let mut text: Vec<char> = seed.get(&seeds).chars().take(4_000).collect();
        for (from, length, word) in mutations {
            let from = from.index(text.len() + 1);
            let to = (from + length.index(12)).min(text.len());
            text.splice(from..to, word.chars());
        }
        check(&text.into_iter().collect::<String>())?;
    }
}

/// Whatever it is, it ends in definitions that survive being stored, or in faults that can be shown.
fn check(text: &str) -> Result<(), TestCaseError> {
    match parse(text, Path::new("jobs.yaml"), &environment()) {
        Ok(loaded) => {
            for entry in &loaded.definitions {
                let again = parse_stored(&entry.stored).expect("what was stored");
                // The keys about time belong to the file and not to a revision, so they are not stored with it.
                let stored = Definition {
                    timetable: Timetable::default(),
                    expect: Expect::default(),
                    ..(*entry.definition).clone()
                };
                prop_assert_eq!(&again, &stored);
            }
        }
        Err(faults) => {
            prop_assert!(!faults.list.is_empty());
            let shown = faults.to_string();
            prop_assert!(!shown.contains('\u{1b}') && !shown.contains('\0'), "{}", shown);
        }
    }
    Ok(())
}

#[test]
fn another_reader_of_yaml_sees_the_same() {
    for text in good_texts() {
        let path = repository().join("examples/reports/jobs.yaml");
        let ours = parse(&text, &path, &environment()).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
        let value: Value = yaml_serde::from_str(&text).expect("the other reader takes it");
        // JSON is YAML: what the other reader saw is given to ours.
        let theirs = parse(&value.to_string(), &path, &environment())
            .unwrap_or_else(|faults| panic!("{value}\n{faults}"));
        let mut expected: Vec<_> = ours.definitions.iter().map(|entry| &entry.definition).collect();
        let mut seen: Vec<_> = theirs.definitions.iter().map(|entry| &entry.definition).collect();
        expected.sort_by_key(|definition| &definition.name);
        seen.sort_by_key(|definition| &definition.name);
        assert_eq!(seen, expected, "{text}");
    }
}

#[test]
fn no_key_is_taken_without_being_read() {
    let schema = schema();
    let mut keys = Vec::new();
    collect(&schema["$defs"]["job"], "", &mut keys);
    assert!(keys.len() > 45, "{keys:?}");
    // The input of a job is any value.
    for key in keys.into_iter().filter(|key| key != "input") {
        // No other key takes a list of lists of maps, so every reader must object.
        let nested = key.rsplit('.').fold("[[{}]]".to_owned(), |value, part| match part {
            "volumes[]" => format!("{{volumes: [{value}]}}"),
            part => format!("{{{part}: {value}}}"),
        });
        let image = if key == "image" { "" } else { "image: busybox, " };
        let text = format!("- {{name: a, {image}{}", &nested[1..]);
        let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err(&text);
        let told = faults
            .list
            .iter()
            .any(|fault| matches!(fault.code, FaultCode::ExpectedType | FaultCode::ExpectedString));
        assert!(told && !faults.to_string().contains("unknown_field"), "{text}\n{faults}");
    }
}

/// The keys of a job as paths: `retry.backoff.max`, `volumes[].source`.
fn collect(schema: &Value, prefix: &str, keys: &mut Vec<String>) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    for (name, shape) in properties {
        let key = format!("{prefix}{name}");
        for part in parts_of(shape) {
            collect(part, &format!("{key}."), keys);
        }
        if let Some(items) = shape.get("items") {
            for part in parts_of(items) {
                collect(part, &format!("{key}[]."), keys);
            }
        }
        keys.push(key);
    }
}

fn parts_of(shape: &Value) -> Vec<&Value> {
    let choices = shape.get("anyOf").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    std::iter::once(shape).chain(choices).filter(|part| part.get("properties").is_some()).collect()
}

/// The shipped files and the blocks of the reference.
fn good_texts() -> Vec<String> {
    let files = shipped_files().into_iter().map(|file| fs::read_to_string(file).expect("a jobs file"));
    let blocks = fenced_yaml(&repository().join("docs/jobs-yaml.md")).into_iter().map(|(_, text)| text);
    files.chain(blocks).collect()
}

fn seeds() -> Vec<String> {
    let bad = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs_files/bad"))
        .expect("the bad files");
    let mut seeds: Vec<_> = bad
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| fs::read_to_string(path).expect("a file"))
        .collect();
    seeds.extend(good_texts());
    seeds.sort();
    seeds
}

const WORDS: &[&str] = &[
    "jobs",
    "defaults",
    "version",
    "image",
    "command",
    "environment",
    "retry",
    "timeout",
    "volumes",
    "name",
    "busybox",
    ": ",
    ":",
    "- ",
    "-",
    "\n",
    "\n  ",
    "\n    ",
    " ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "&a ",
    "*a",
    "!!str ",
    "<<",
    "|\n",
    ">-\n",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "${TAG}",
    "${",
    "$$",
    "\\",
    "\u{1b}",
    "\0",
    "é",
    "🚢",
    "1h",
    "-1",
    "1e9",
    "~",
    "true",
    "no",
    "x-y",
    "\u{feff}",
    "?",
    "99999999999999999999",
];
