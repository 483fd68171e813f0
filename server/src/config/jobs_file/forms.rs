//! The two forms of a jobs file: a list of jobs, and a map with `jobs`.

use std::sync::Arc;

use super::fault::{FaultCode, Position, quoted};
use super::job::{self, Job};
use super::reader::Reader;
use super::scope::Scope;
use super::tree::{Map, Node, Pair, Value};
use super::{grammar, stored};
use crate::catalogue::Entry;

/// Reads the jobs of a file; `None` has none.
pub(super) fn read(root: Option<&Node>, reader: &mut Reader<'_>) -> Vec<Entry> {
    match root {
        None => Vec::new(),
        Some(Node { value: Value::List(items), .. }) => read_list(items, reader),
        Some(Node { value: Value::Map(map), .. }) => read_map(map, reader),
        Some(node) => {
            let text = format!("expected a map with \"jobs\", or a list of jobs, found {}", node.describe());
            reader.fault_of_jobs(node.at, FaultCode::ExpectedJobs, text);
            Vec::new()
        }
    }
}

/// The short form: a list of jobs with a name each.
fn read_list(items: &[Node], reader: &mut Reader<'_>) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(items.len());
    for item in items {
        let Value::Map(map) = &item.value else {
            reader.wrong_type(item, "a map with \"name\" and \"image\"");
            continue;
        };
        let (name, name_at) = read_name(item, map, reader).unwrap_or_else(|| (String::new(), item.at));
        reader.add_name(&name, name_at);
        let job = job::read(&name, name_at, map, None, &["name", "x-*"], reader);
        // Faults of the job as a whole stand at its beginning: at the name they would be taken for faults of the name.
        entries.extend(finish(job, item.at, Scope::new(map, None), reader));
        if reader.resolved_bytes > reader.resolved_bytes_max {
            break;
        }
    }
    entries
}

fn read_name(item: &Node, map: &Map, reader: &mut Reader<'_>) -> Option<(String, Position)> {
    let Some(pair) = map.find("name") else {
        reader.fault(item.at, FaultCode::MissingField, "a job in a list needs \"name\"");
        return None;
    };
    let (name, at) = (reader.checked_text(&pair.value, grammar::job_name)?, pair.value.at);
    if reader.has_variable(at) {
        reader.names_with_variables.insert(name.clone(), reader.as_written(at, &name));
    }
    Some((name, at))
}

/// The long form: `version`, `defaults` and `jobs`.
fn read_map(map: &Map, reader: &mut Reader<'_>) -> Vec<Entry> {
    for pair in &map.pairs {
        match pair.key.as_str() {
            "version" => check_version(&pair.value, reader),
            "defaults" | "jobs" => {}
            key if key.starts_with("x-") => {}
            key => {
                let text = match grammar::nearest(key, ["version", "defaults", "jobs"].into_iter()) {
                    Some(near) => format!("unknown field {}: did you mean \"{near}\"?", quoted(key)),
                    None => format!(
                        "unknown field {}; at the top are version, defaults, jobs and x-*",
                        quoted(key)
                    ),
                };
                reader.fault(pair.key_at, FaultCode::UnknownField, text);
            }
        }
    }
    let defaults =
        map.find("defaults").filter(|pair| !pair.value.is_null()).and_then(|pair| as_map(pair, reader));
    let defaults_fit = defaults.is_none_or(|defaults| check_defaults(defaults, reader));
    let Some(jobs) = map.find("jobs") else {
        let at = map.pairs.first().map_or(Position::FILE, |pair| pair.key_at);
        reader.fault_of_jobs(
            at,
            FaultCode::ExpectedJobs,
            "the file needs \"jobs\", a map of jobs by name; or make the whole file a list of jobs",
        );
        return Vec::new();
    };
    if jobs.value.is_null() {
        return Vec::new();
    }
    if matches!(jobs.value.value, Value::List(_)) {
        let text = "expected a map of jobs by name; to give a list of jobs, leave out the key \"jobs\"";
        reader.fault_of_jobs(jobs.value.at, FaultCode::ExpectedJobs, text);
        return Vec::new();
    }
    let Some(jobs) = as_map(jobs, reader).filter(|_| defaults_fit) else {
        reader.misses_jobs = true;
        return Vec::new();
    };
    let mut entries = Vec::with_capacity(jobs.pairs.len());
    for pair in &jobs.pairs {
        entries.extend(read_named(pair, defaults, reader));
        if reader.resolved_bytes > reader.resolved_bytes_max {
            break;
        }
    }
    entries
}

/// Refuses defaults that are too long: they are read again with each job.
fn check_defaults(defaults: &Map, reader: &mut Reader<'_>) -> bool {
    let Job { mut definition, .. } = job::read_defaults(defaults, reader);
    let length = stored::store(&mut definition).entry.len();
    if length > ENTRY_BYTES_MAX {
        let at = defaults.pairs.first().map_or(Position::FILE, |pair| pair.key_at);
        let text = format!("the defaults are too long with {length} bytes (max {ENTRY_BYTES_MAX})");
        reader.fault(at, FaultCode::TooLong, text);
    }
    length <= ENTRY_BYTES_MAX
}

fn read_named(pair: &Pair, defaults: Option<&Map>, reader: &mut Reader<'_>) -> Option<Entry> {
    reader.accept(pair.key_at, grammar::job_name(&pair.key));
    reader.add_name(&pair.key, pair.key_at);
    let map = as_map(pair, reader)?;
    let job = job::read(&pair.key, pair.key_at, map, defaults, &["x-*"], reader);
    finish(job, pair.key_at, Scope::new(map, defaults), reader)
}

/// Makes the entry, unless the file is refused. The length counts in any case, which bounds the work on a hostile file.
fn finish(job: Job, at: Position, scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<Entry> {
    let Job { mut definition, params_in_order, description, owner, tags, notify, retention } = job;
    reader.hooks.add_job(&definition);
    let stored = stored::store(&mut definition);
    if stored.entry.len() > ENTRY_BYTES_MAX {
        let text = format!("the job is too long with {} bytes (max {ENTRY_BYTES_MAX})", stored.entry.len());
        reader.fault(at, FaultCode::TooLong, text);
    }
    reader.resolved_bytes += stored.entry.len();
    if reader.resolved_bytes > reader.resolved_bytes_max {
        let max = reader.resolved_bytes_max;
        let text = format!("the jobs up to here are too long with everything resolved (max {max} bytes)");
        reader.fault(at, FaultCode::TooLong, text);
    }
    if let Err(invalid) = protocol::wire::container_fits(&definition.container) {
        reader.fault(at, FaultCode::TooLong, invalid.to_string());
    }
    for violation in reader.environment.policy().check_definition(&definition) {
        let job = reader.shown_job(&definition.name);
        let parts: &[&str] = match violation.key {
            // The memory of the last attempt depends on both.
            "resources.memory" => &["resources", "retry"],
            "secrets" => &["secrets", "environment"],
            key => &[key.split('.').next().unwrap_or(key)],
        };
        let has_variable = parts.iter().any(|part| scope.has_variable(part));
        // The fault of an image that is missing or misspelt says enough.
        let has_no_value = violation.key == "image" && definition.container.image.is_empty();
        if has_no_value || parts.iter().any(|part| scope.has_left_out(part, reader)) {
            continue;
        }
        let text = match has_variable {
            true => format!(
                "the job {job}: {}: a value with a variable is not allowed (rule {} of the server's policy)",
                violation.key, violation.rule
            ),
            false => format!("the job {job}: {violation}"),
        };
        reader.fault(at, FaultCode::ForbiddenByPolicy, text);
    }
    let (definition, stored) = (Arc::new(definition), Arc::new(stored));
    let file = reader.file.clone();
    let entry =
        Entry { definition, stored, file, params_in_order, description, owner, tags, notify, retention };
    reader.collector.is_clean().then_some(entry)
}

fn check_version(node: &Node, reader: &mut Reader<'_>) {
    let is_one = matches!(&node.value, Value::Scalar(scalar) if scalar.text == "1");
    if !is_one {
        reader.fault(node.at, FaultCode::UnsupportedVersion, "this Longshore reads version 1");
    }
}

fn as_map<'a>(pair: &'a Pair, reader: &mut Reader<'_>) -> Option<&'a Map> {
    match &pair.value.value {
        Value::Map(map) => Some(map),
        _ => {
            reader.wrong_type(&pair.value, "a map");
            None
        }
    }
}

/// Bytes of the largest resolved job: a worker receives it in one message.
const ENTRY_BYTES_MAX: usize = 256 * 1024;
