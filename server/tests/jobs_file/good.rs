//! Files shown to people work: the shipped jobs.yaml, the examples, and every piece of YAML in the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use longshore_server::config::jobs_file::{FaultCode, LoadedFile, load, parse, parse_stored, schema};
use serde_json::Value;

use crate::support::{environment, fenced_yaml, repository, shipped_files};

#[test]
fn the_shipped_files_load_without_warnings() {
    for file in shipped_files() {
        let loaded = load(&file, &environment()).unwrap_or_else(|faults| panic!("{faults}"));
        assert!(!loaded.definitions.is_empty() && loaded.warnings.is_empty(), "{}", file.display());
    }
}

#[test]
fn every_example_of_the_documentation_loads() {
    let mut count = 0;
    for path in pages() {
        for (line, text) in jobs_files_in(&path) {
            parse(&text, &repository().join("examples/reports/jobs.yaml"), &environment())
                .unwrap_or_else(|faults| panic!("{}:{line}:\n{faults}", path.display()));
            count += 1;
        }
    }
    assert!(count >= 50, "{count} examples");
}

#[test]
fn the_recipes_of_schedules_load_with_the_warnings_that_the_page_names() {
    let path = repository().join("docs/scheduling.md");
    let recipes = jobs_files_in(&path);
    assert!(recipes.len() >= 11, "{} recipes", recipes.len());
    for (line, text) in recipes {
        let loaded = only(&text);
        let warnings: Vec<FaultCode> = loaded.warnings.iter().map(|warning| warning.code).collect();
        let expected: &[FaultCode] =
            if text.contains("every: 500ms") { &[FaultCode::FiresTooOften] } else { &[] };
        assert_eq!(warnings, expected, "{}:{line}", path.display());
    }
}

#[test]
fn every_code_is_documented() {
    let documentation = fs::read_to_string(repository().join("docs/jobs-yaml.md")).expect("the page");
    for code in FaultCode::ALL {
        assert!(documentation.contains(&format!("`{code}`")), "{code} is not in docs/jobs-yaml.md");
    }
}

#[test]
fn every_key_of_the_schema_is_documented() {
    let documentation = fs::read_to_string(repository().join("docs/jobs-yaml.md")).expect("the page");
    let schema = schema();
    let mut keys = Vec::new();
    collect_keys(&schema["$defs"]["job"], &mut keys);
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        let by_name = documentation.contains(&format!("`{key}`"));
        assert!(by_name, "{key} is not in docs/jobs-yaml.md");
    }
}

#[test]
fn every_key_has_an_example_in_the_reference() {
    let schema = schema();
    let job = &schema["$defs"]["job"];
    let mut missing = BTreeSet::new();
    collect_paths(job, "", &mut missing);
    assert!(missing.len() > 120, "{missing:?}");
    for (_, text) in jobs_files_in(&repository().join("docs/jobs-yaml.md")) {
        let file: Value = yaml_serde::from_str(&text).expect("valid YAML");
        let jobs = object(&file["jobs"]).into_iter().map(|(_, job)| job);
        for job in jobs.chain(list(&file)).chain([&file["defaults"]]) {
            strike_out(job, "", &mut missing);
        }
    }
    assert!(missing.is_empty(), "no example in docs/jobs-yaml.md has {missing:?}");
}

#[test]
fn the_schema_accepts_every_file_that_the_reader_accepts() {
    let schema = schema();
    let mut texts: Vec<_> = shipped_files()
        .iter()
        .map(|file| (file.display().to_string(), fs::read_to_string(file).expect("a file")))
        .collect();
    for page in pages() {
        let name = |line| format!("{}:{line}", page.display());
        texts.extend(jobs_files_in(&page).into_iter().map(|(line, text)| (name(line), text)));
    }
    for (name, text) in texts {
        let value: Value = yaml_serde::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Err(why) = validate(&schema, &schema, &value) {
            panic!("{name}: {why}");
        }
    }
}

#[test]
fn the_schema_refuses_unknown_keys_everywhere() {
    let schema = schema();
    for text in [
        "{jobs: {a: {image: b, imgae: c}}}",
        "{jobs: {a: {image: b, resources: {x: 1}}}}",
        "{jobs: {a: {image: b, retry: {backoff: {x: 1}}}}}",
        "{jobs: {a: {image: b, volumes: [{x: 1}]}}}",
        "{jobs: {-a: {image: b}}}",
        "{job: {}}",
        "[{image: a}]",
        "{jobs: {a: {image: b, priority: 101}}}",
    ] {
        let value: Value = yaml_serde::from_str(text).expect(text);
        assert!(validate(&schema, &schema, &value).is_err(), "{text}");
        let refused = parse(text, Path::new("jobs.yaml"), &environment());
        assert!(refused.is_err(), "{text}");
    }
}

#[test]
fn only_effective_keys_change_the_revision() {
    let original = "jobs:\n  a:\n    image: busybox\n    environment: {A: 1, B: x}\n    timeout: 60s\n";
    let same = [
        "# comment\nversion: 1\njobs: {a: {timeout: 1m, environment: [B=x, A=1], image: 'busybox'}}\n",
        "- {name: a, image: busybox, environment: {B: x, A: \"1\"}, timeout: 1 minute}\n",
        "defaults: {image: busybox, environment: {A: 1}}\njobs: {a: {environment: {B: x}, timeout: 60s}}\n",
        "jobs:\n  a:\n    image: busybox\n    environment: {A: 1, B: x}\n    timeout: 60s\n    description: d\n    owner: o\n    tags: [t]\n    x-note: n\n",
        "jobs:\n  a:\n    image: ${IMAGE}\n    environment: {A: 1, B: x}\n    timeout: 60s\n    init: true\n    priority: 0\n",
    ];
    let other = [
        "jobs: {a: {image: busybox, environment: {A: 1, B: y}, timeout: 60s}}",
        "jobs: {b: {image: busybox, environment: {A: 1, B: x}, timeout: 60s}}",
        "jobs: {a: {image: busybox, environment: {A: 1, B: x}, timeout: 60s, enabled: false}}",
        "jobs: {a: {image: busybox, environment: {A: 1, B: x}, timeout: 61s}}",
    ];
    let revision = |text: &str| only(text).definitions[0].definition.revision;
    for text in same {
        assert_eq!(revision(text), revision(original), "{text}");
    }
    for text in other {
        assert_ne!(revision(text), revision(original), "{text}");
    }
}

#[test]
fn a_stored_definition_that_was_changed_is_refused() {
    let loaded = only("- {name: a, image: busybox}");
    let mut stored = (*loaded.definitions[0].stored).clone();
    assert!(parse_stored(&stored).is_ok());
    stored.entry = stored.entry.replace("busybox", "another");
    assert!(parse_stored(&stored).is_err());
}

#[test]
fn forty_thousand_small_jobs_fit_into_one_file() {
    let text: String = (0..40_000).map(|n| format!("- {{name: j{n}, image: busybox}}\n")).collect();
    assert_eq!(only(&text).definitions.len(), 40_000);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("jobs.yaml");
    fs::write(&file, "\u{feff}- {name: a, image: busybox}\n").expect("written");
    assert_eq!(load(&file, &environment()).expect("a good file").definitions.len(), 1);
}

fn only(text: &str) -> LoadedFile {
    parse(text, Path::new("jobs.yaml"), &environment()).unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

/// The pages of the documentation, and the READMEs.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository().join("README.md")];
    for directory in ["docs", "docs/problems", "docs/design"] {
        let entries = fs::read_dir(repository().join(directory)).expect("the pages");
        pages.extend(
            entries
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|it| it == "md")),
        );
    }
    pages.sort();
    pages
}

/// The jobs files in a page. Other files have other keys at their beginning, and pieces of one have none.
fn jobs_files_in(path: &Path) -> Vec<(usize, String)> {
    let is_jobs_file = |text: &str| {
        path.ends_with("docs/jobs-yaml.md")
            || text.lines().any(|line| line.starts_with("jobs:"))
            || text.starts_with("- name:")
    };
    fenced_yaml(path).into_iter().filter(|(_, text)| is_jobs_file(text)).collect()
}

fn collect_keys(schema: &Value, keys: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| collect_keys(value, keys));
        }
        Value::Array(list) => list.iter().for_each(|value| collect_keys(value, keys)),
        _ => {}
    }
}

/// The paths of all keys below `path`, such as `.retry.max`; `*` stands for a name. Other spellings of a key are no keys of their own.
fn collect_paths(schema: &Value, path: &str, paths: &mut BTreeSet<String>) {
    for (key, value) in object(&schema["properties"]) {
        let is_alias = value["description"].as_str().is_some_and(|about| about.starts_with("The same as "));
        if !is_alias {
            let path = format!("{path}.{key}");
            collect_paths(value, &path, paths);
            paths.insert(path);
        }
    }
    let patterns = object(&schema["patternProperties"]).into_iter().map(|(_, value)| value);
    for value in patterns.chain(schema.get("additionalProperties")) {
        collect_paths(value, &format!("{path}.*"), paths);
    }
    let alternatives = ["anyOf", "oneOf"].into_iter().flat_map(|word| list(&schema[word]));
    for value in alternatives.chain(schema.get("items")) {
        collect_paths(value, path, paths);
    }
}

/// Removes the paths of the keys that this value has.
fn strike_out(value: &Value, path: &str, missing: &mut BTreeSet<String>) {
    list(value).iter().for_each(|item| strike_out(item, path, missing));
    for (key, value) in object(value) {
        let by_name = format!("{path}.{key}");
        missing.remove(&by_name);
        strike_out(value, &by_name, missing);
        strike_out(value, &format!("{path}.*"), missing);
    }
}

/// As much of JSON Schema as the schema uses, without `pattern`, which the reader checks better. A word it does not know is an error.
fn validate(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(rules) = schema else {
        return if schema == &Value::Bool(true) { Ok(()) } else { Err("nothing is allowed".to_owned()) };
    };
    for (rule, argument) in rules {
        let holds = match rule.as_str() {
            "$ref" => {
                let name =
                    argument.as_str().and_then(|path| path.strip_prefix("#/$defs/")).expect("a reference");
                validate(root, &root["$defs"][name], value)?;
                true
            }
            "oneOf" | "anyOf" => {
                let results: Vec<_> =
                    list(argument).iter().map(|schema| validate(root, schema, value)).collect();
                let fitting = results.iter().filter(|result| result.is_ok()).count();
                if fitting == 0 {
                    return Err(results.into_iter().filter_map(Result::err).collect::<Vec<_>>().join(" / "));
                }
                rule == "anyOf" || fitting == 1
            }
            "type" => match argument {
                Value::Array(types) => types.iter().any(|wanted| has_type(value, wanted)),
                wanted => has_type(value, wanted),
            },
            "enum" => list(argument).contains(value),
            "const" => argument == value,
            "minimum" => value.as_f64() >= argument.as_f64(),
            "maximum" => value.as_f64() <= argument.as_f64(),
            "required" => list(argument).iter().all(|key| value.get(key.as_str().expect("a key")).is_some()),
            "items" => {
                for item in list(value) {
                    validate(root, argument, item)?;
                }
                true
            }
            "properties" => {
                for (key, member) in object(value) {
                    if let Some(schema) = argument.get(key) {
                        validate(root, schema, member).map_err(|why| format!("{key}: {why}"))?;
                    }
                }
                true
            }
            "patternProperties" => {
                for (key, member) in object(value) {
                    for (pattern, schema) in object(argument) {
                        if fits(pattern, key) {
                            validate(root, schema, member).map_err(|why| format!("{key}: {why}"))?;
                        }
                    }
                }
                true
            }
            "additionalProperties" if argument == &Value::Bool(false) => {
                object(value).iter().all(|(key, _)| {
                    rules.get("properties").is_some_and(|properties| properties.get(key).is_some())
                        || rules.get("patternProperties").is_some_and(|patterns| {
                            object(patterns).iter().any(|(pattern, _)| fits(pattern, key))
                        })
                })
            }
            "additionalProperties" => {
                for (key, member) in object(value) {
                    validate(root, argument, member).map_err(|why| format!("{key}: {why}"))?;
                }
                true
            }
            "$schema" | "$defs" | "title" | "description" | "pattern" => true,
            unknown => panic!("the schema uses {unknown}"),
        };
        if !holds {
            return Err(format!("{value} does not satisfy {rule} {argument}"));
        }
    }
    Ok(())
}

fn fits(pattern: &str, key: &str) -> bool {
    if let Some(names) = pattern.strip_prefix("^(").and_then(|it| it.strip_suffix(")$")) {
        return names.split('|').any(|name| name == key);
    }
    match pattern {
        "^x-" => key.starts_with("x-"),
        "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" => {
            let word = |c: char| c.is_ascii_alphanumeric();
            key.starts_with(word) && key.len() <= 63 && key.chars().all(|c| word(c) || "._-".contains(c))
        }
        "^[a-z][a-z0-9_]{0,62}$" => {
            let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            key.starts_with(|c: char| c.is_ascii_lowercase()) && key.len() <= 63 && key.chars().all(rest)
        }
        unknown => panic!("the schema uses the pattern {unknown}"),
    }
}

fn has_type(value: &Value, wanted: &Value) -> bool {
    match wanted.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        unknown => panic!("the schema uses the type {unknown}"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn object(value: &Value) -> Vec<(&String, &Value)> {
    value.as_object().map(|map| map.iter().collect()).unwrap_or_default()
}
