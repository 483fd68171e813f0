//! jobs.yaml, or a directory of such files: from text to definitions, or to a list of all faults.
//!
//! Two forms are read: a map with `version`, `defaults` and `jobs`, and a bare list of jobs with a `name` each. The text becomes a tree
//! that knows file, line and column of each value (`tree`). The readers walk it, record every fault and go on. A file with one fault is
//! refused as a whole, and with it all files of its directory, so a reload never takes half. Later code does not check definitions again.
//!
//! `keys` is the one table of keys; the JSON Schema ([`schema`]) is made from it. `stored` is the resolved entry as the store keeps it with
//! the jobs; its hash is the revision.

mod advice;
mod annotate;
mod backoff;
mod collector;
mod command_advice;
mod container;
mod container_options;
mod fault;
pub(crate) mod grammar;
mod hook_graph;
mod hooks;
mod image;
mod input;
mod job;
mod key_names;
mod key_source;
mod keys;
mod limits;
pub(crate) mod listing;
mod log;
mod names;
mod notify;
mod pairs;
mod params;
pub(crate) mod placement;
pub(crate) mod quantity;
mod reader;
mod references;
mod retention;
mod rule_cache;
mod run_on;
mod schedule;
mod schema;
mod scope;
mod secrets;
mod snippet;
mod source;
mod sources;
mod stored;
mod stored_params;
mod substitute;
mod texts;
mod tree;
mod unique;
mod volume;

use std::path::Path;
use std::sync::Arc;

pub use fault::{Code, FAULTS_MAX, Fault, Faults, Position};
pub use listing::FILES_MAX;
pub use schema::schema;
pub use stored::{Damaged, parse_stored};
pub use substitute::{Environment, MailSupport};
pub use texts::{JobsText, NameFault, NamedText, read_text};

use crate::catalogue::Entry;
use collector::Collector;
use fault::{FileIndex, quoted};
use job::Job;
use reader::Reader;
use references::References;
use scope::Scope;
use sources::{SourceKind, Sources};
use texts::ReadTexts;
use tree::{Map, Node, Pair, Value};

/// The content of a valid file, or of the valid files of a directory.
#[derive(Debug)]
pub struct LoadedFile {
    /// The jobs in the order of the files; their names are unique.
    pub definitions: Vec<Entry>,
    /// Warnings: suspicious values that are no reason to refuse the file.
    pub warnings: Vec<Fault>,
    /// The text of the file or the files.
    pub text: JobsText,
}

impl LoadedFile {
    /// For a reload: a file without jobs is more likely a mistake than intended, so it changes nothing.
    ///
    /// # Errors
    /// The file defines no jobs.
    pub fn require_jobs(self) -> Result<Self, Faults> {
        if self.definitions.is_empty() { Err(Faults { list: self.warnings, more: 0 }) } else { Ok(self) }
    }
}

/// Reads a jobs file or the jobs files of a directory, and the environment files that they name, from disk. Blocks on the disk.
///
/// # Errors
/// All faults of the files. Files without jobs are only a warning: see [`LoadedFile::require_jobs`].
pub fn load(path: &Path, environment: &Environment) -> Result<LoadedFile, Faults> {
    let ReadTexts { text, unreadable } = texts::read(path)?;
    let sources = match &text {
        JobsText::File(text) => Sources::of_file(text, path),
        JobsText::Directory(files) => Sources::of_directory(files, &unreadable, path),
    };
    let (definitions, warnings) = parse_within(&sources, environment, RESOLVED_BYTES_MAX)?;
    Ok(LoadedFile { definitions, warnings, text })
}

/// Reads the text of a jobs file. `path` names the file in faults; environment files are looked up in its directory.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, path: &Path, environment: &Environment) -> Result<LoadedFile, Faults> {
    parse_text(JobsText::File(text.to_owned()), path, environment)
}

/// Reads the text of the jobs file or the directory at `path`.
///
/// # Errors
/// As [`load`].
pub fn parse_text(text: JobsText, path: &Path, environment: &Environment) -> Result<LoadedFile, Faults> {
    let (definitions, warnings) = parse_within(&Sources::of(&text, path), environment, RESOLVED_BYTES_MAX)?;
    Ok(LoadedFile { definitions, warnings, text })
}

/// Reads the text of jobs files that somebody else than the server's operator may have written. They may take variables and environment
/// files from the server only as the present file or files at `path` do. Blocks on the disk.
///
/// # Errors
/// As [`load`], and a fault for each other reference.
pub fn parse_proposed(text: JobsText, path: &Path, environment: &Environment) -> Result<LoadedFile, Faults> {
    let text = if path.is_dir() { text.into_directory() } else { text };
    let place = match &text {
        JobsText::Directory(_) if !path.is_dir() => path.parent().unwrap_or(Path::new("")),
        _ => path,
    };
    let sources = Sources::of(&text, place);
    sources.check_length()?;
    let present = texts::read(path).map(|read| References::of(&Sources::of(&read.text, path)));
    References::of(&sources).check(&present.unwrap_or_default(), &sources)?;
    parse_text(text, place, environment)
}

/// The definitions and warnings of these texts.
fn parse_within(
    sources: &Sources<'_>,
    environment: &Environment,
    resolved_bytes_max: usize,
) -> Result<(Vec<Entry>, Vec<Fault>), Faults> {
    sources.check_length()?;
    let mut collector = Collector::new(sources);
    let (roots, misses_jobs) = read_trees(sources, &mut collector);
    let mut reader = Reader::new(environment, &sources.directory, &mut collector, resolved_bytes_max);
    reader.misses_jobs = misses_jobs;
    let mut entries = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        reader.collector.enter(reader.collector.index_of(number));
        reader.file = sources.name_in_directory(number);
        entries.extend(read_root(root.as_ref(), &mut reader));
        if reader.resolved_bytes > reader.resolved_bytes_max {
            break;
        }
    }
    reader.collector.enter(FileIndex::SET);
    check_all(&entries, sources, &mut reader);
    let warnings = annotate::annotate(collector.finish(), sources, &roots)?;
    Ok((entries, warnings))
}

/// The trees of the files that have one, and whether one of the others may have jobs.
fn read_trees(sources: &Sources<'_>, collector: &mut Collector) -> (Vec<Option<Node>>, bool) {
    let (mut misses_jobs, mut copied) = (false, tree::Size::default());
    let read = |(number, file): (usize, &sources::SourceFile<'_>)| {
        collector.enter(collector.index_of(number));
        let before = collector.count();
        let root = match file.text {
            Ok(text) => tree::read(text, &mut copied, collector),
            Err(wrong) => {
                collector.fault(Position::FILE, wrong.code, wrong.to_string());
                None
            }
        };
        misses_jobs |= root.is_none() && collector.count() > before;
        root
    };
    let roots = sources.files.iter().enumerate().map(read).collect();
    (roots, misses_jobs)
}

fn read_root(root: Option<&Node>, reader: &mut Reader<'_>) -> Vec<Entry> {
    match root {
        None => Vec::new(),
        Some(Node { value: Value::List(items), .. }) => read_list(items, reader),
        Some(Node { value: Value::Map(map), .. }) => read_map(map, reader),
        Some(node) => {
            let text = format!("expected a map with \"jobs\", or a list of jobs, found {}", node.describe());
            reader.fault_of_jobs(node.at, Code::ExpectedJobs, text);
            Vec::new()
        }
    }
}

/// Checks the jobs of all files together.
fn check_all(entries: &[Entry], sources: &Sources<'_>, reader: &mut Reader<'_>) {
    let schedules: usize = entries.iter().map(|entry| entry.definition.timetable.schedules.len()).sum();
    let (of_set, no_jobs) = match sources.kind {
        SourceKind::File => ("in the file", "file defines no jobs"),
        SourceKind::Directory if sources.files.is_empty() => {
            ("in the files", "the directory has no files *.yaml or *.yml")
        }
        SourceKind::Directory => ("in the files", "its files define no jobs"),
    };
    if schedules > SCHEDULES_MAX {
        let text = format!("{schedules} schedules {of_set} are too many (max {SCHEDULES_MAX})");
        reader.fault(Position::FILE, Code::TooLong, text);
    }
    hooks::check(reader);
    if entries.is_empty() && reader.collector.is_clean() {
        reader.collector.warning(Position::FILE, Code::NoJobs, no_jobs);
    }
}

/// Schedules of all definitions together: some hundred megabytes, and a reading of the file looks at each.
const SCHEDULES_MAX: usize = 200_000;

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
        reader.fault(item.at, Code::MissingField, "a job in a list needs \"name\"");
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
                reader.fault(pair.key_at, Code::UnknownField, text);
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
            Code::ExpectedJobs,
            "the file needs \"jobs\", a map of jobs by name; or make the whole file a list of jobs",
        );
        return Vec::new();
    };
    if jobs.value.is_null() {
        return Vec::new();
    }
    if matches!(jobs.value.value, Value::List(_)) {
        let text = "expected a map of jobs by name; to give a list of jobs, leave out the key \"jobs\"";
        reader.fault_of_jobs(jobs.value.at, Code::ExpectedJobs, text);
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
        reader.fault(at, Code::TooLong, text);
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
        reader.fault(at, Code::TooLong, text);
    }
    reader.resolved_bytes += stored.entry.len();
    if reader.resolved_bytes > reader.resolved_bytes_max {
        let max = reader.resolved_bytes_max;
        let text = format!("the jobs up to here are too long with everything resolved (max {max} bytes)");
        reader.fault(at, Code::TooLong, text);
    }
    if let Err(invalid) = protocol::wire::container_fits(&definition.container) {
        reader.fault(at, Code::TooLong, invalid.to_string());
    }
    for violation in reader.environment.policy().check_definition(&definition) {
        let job = reader.shown_job(&definition.name);
        let parts: &[&str] = match violation.key {
            // The memory of the last attempt depends on both.
            "resources.memory" => &["resources", "retry"],
            "secrets" => &["secrets", "environment"],
            key => &[key.split('.').next().unwrap_or(key)],
        };
        let text = match parts.iter().any(|part| scope.has_variable(part)) {
            true => format!(
                "the job {job}: {}: a value with a variable is not allowed (rule {} of the server's policy)",
                violation.key, violation.rule
            ),
            false => format!("the job {job}: {violation}"),
        };
        reader.fault(at, Code::ForbiddenByPolicy, text);
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
        reader.fault(node.at, Code::UnsupportedVersion, "this Longshore reads version 1");
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

/// Bytes of the largest jobs file, or of all files of a directory: 40,000 short jobs.
pub const FILE_BYTES_MAX: usize = 2_000_000;
/// Bytes of the largest resolved job: a worker receives it in one message.
const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of all resolved jobs: `defaults` and aliases are copied into each job.
const RESOLVED_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
