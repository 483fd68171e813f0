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
mod fault;
mod forms;
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

pub use fault::{FAULTS_MAX, Fault, FaultCode, Faults, Position};
pub use listing::FILES_MAX;
pub use schema::schema;
pub(crate) use stored::log_bytes_max;
pub use stored::{Damaged, parse_stored};
pub use substitute::{Environment, MailSupport};
pub use texts::{JobsText, NameFault, NamedText, read_text};

use crate::catalogue::Entry;
use collector::Collector;
use fault::FileIndex;
use reader::Reader;
use references::References;
use sources::{SourceKind, Sources};
use texts::ReadTexts;
use tree::Node;

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
/// files from the server only as the present file or files at `path` do, or texts that it `accepted` before: the present file may be the
/// faulty one that they are to replace. Blocks on the disk.
///
/// # Errors
/// As [`load`], and a fault for each other reference; with such a one nothing is taken from the server at all.
pub fn parse_proposed(
    text: JobsText,
    path: &Path,
    accepted: &[JobsText],
    environment: &Environment,
) -> Result<LoadedFile, Faults> {
    let text = if path.is_dir() { text.into_directory() } else { text };
    let place = match &text {
        JobsText::Directory(_) if !path.is_dir() => path.parent().unwrap_or(Path::new("")),
        _ => path,
    };
    let sources = Sources::of(&text, place);
    sources.check_length()?;
    let present = texts::read(path).map(|read| References::of(&Sources::of(&read.text, path)));
    let accepted = accepted.iter().map(|text| References::of(&Sources::of(text, path)));
    let known = accepted.fold(present.unwrap_or_default(), References::or);
    if let Err(unknown) = References::of(&sources).check(&known, &sources) {
        let without = environment.clone().without_variables().elsewhere();
        return Err(match parse_text(text, place, &without) {
            Ok(_) => unknown,
            Err(others) => unknown.and(others),
        });
    }
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
        entries.extend(forms::read(root.as_ref(), &mut reader));
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
    let is_directory = sources.kind == SourceKind::Directory;
    let read = |(number, file): (usize, &sources::SourceFile<'_>)| {
        collector.enter(collector.index_of(number));
        let before = collector.count();
        let root = match file.text {
            // A writer has emptied it and not written it yet, or the disk is full: its definitions are not to be removed.
            Ok(text) if is_directory && text.trim().is_empty() => {
                collector.fault(
                    Position::FILE,
                    FaultCode::NoJobs,
                    "the file is empty: remove it, or write \"jobs: {}\" into it",
                );
                None
            }
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
        reader.fault(Position::FILE, FaultCode::TooLong, text);
    }
    hooks::check(reader);
    if entries.is_empty() && reader.collector.is_clean() {
        reader.collector.warning(Position::FILE, FaultCode::NoJobs, no_jobs);
    }
}

/// Schedules of all definitions together: some hundred megabytes, and a reading of the file looks at each.
const SCHEDULES_MAX: usize = 200_000;

/// Bytes of the largest jobs file, or of all files of a directory: 40,000 short jobs.
pub const FILE_BYTES_MAX: usize = 2_000_000;
/// Bytes of all resolved jobs: `defaults` and aliases are copied into each job.
const RESOLVED_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
