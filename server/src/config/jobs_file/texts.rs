//! The texts of a jobs file, or of a directory of them, as they are read from disk, sent with a plan, and kept for the next start.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::fault::{Fault, FaultCode, Faults, quoted};
use super::grammar::ValueFault;
use super::listing::{FILES_MAX, is_jobs_file, list};
use super::{FILE_BYTES_MAX, source};

/// The texts of a set of definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsText {
    /// One jobs file.
    #[serde(rename = "text")]
    File(String),
    /// The jobs files of a directory, in the order in which they are read.
    #[serde(rename = "files")]
    Directory(Vec<NamedText>),
}

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedText {
    /// The name, without a directory.
    pub name: String,
    /// The content.
    pub text: String,
}

/// The reason why names of files cannot stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFault {
    /// The number of the file, from 0; none if there are too many.
    pub file: Option<usize>,
    /// The reason.
    pub text: String,
}

impl JobsText {
    /// Texts of files that are not read from disk. They are sorted by name.
    ///
    /// # Errors
    /// A directory could not have these files, or would not be read with them.
    pub fn of_files(mut files: Vec<NamedText>) -> Result<Self, NameFault> {
        if files.len() > FILES_MAX {
            return Err(NameFault { file: None, text: format!("more than {FILES_MAX} files are too many") });
        }
        let mut names = HashSet::new();
        for (number, NamedText { name, .. }) in files.iter().enumerate() {
            let is_read = is_jobs_file(name.as_ref()) && name.len() <= NAME_BYTES_MAX;
            let reason = if !is_read || name.contains(|c: char| c == '/' || c.is_control()) {
                "is no name of a jobs file: NAME.yaml or NAME.yml, without a directory and a dot before it"
            } else if !names.insert(name) {
                "is the name of two files"
            } else {
                continue;
            };
            return Err(NameFault { file: Some(number), text: format!("{} {reason}", quoted(name)) });
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self::Directory(files))
    }

    /// As the files of a directory.
    pub(super) fn into_directory(self) -> Self {
        match self {
            Self::File(text) => Self::Directory(vec![NamedText { name: "jobs.yaml".to_owned(), text }]),
            Self::Directory(files) => Self::Directory(files),
        }
    }

    /// The number of files.
    #[must_use]
    pub const fn files(&self) -> usize {
        match self {
            Self::File(_) => 1,
            Self::Directory(files) => files.len(),
        }
    }
}

/// Texts from the disk.
#[derive(Debug)]
pub(super) struct ReadTexts {
    pub(super) text: JobsText,
    /// Files of the directory that cannot be read, with the reasons.
    pub(super) unreadable: Vec<(String, ValueFault)>,
}

/// Reads a jobs file, or the jobs files of a directory. Blocks on the disk.
///
/// # Errors
/// All files that cannot be read, or a limit that they exceed together.
pub fn read_text(path: &Path) -> Result<JobsText, Faults> {
    let ReadTexts { text, unreadable } = read(path)?;
    if unreadable.is_empty() {
        return Ok(text);
    }
    let fault = |(name, wrong): &(String, ValueFault)| fault(&path.join(name), wrong.code, wrong.to_string());
    Err(Faults { list: unreadable.iter().map(fault).collect(), more: 0 })
}

/// Reads a jobs file, or the jobs files of a directory.
///
/// # Errors
/// The file or the directory cannot be read, or is too large.
pub(super) fn read(path: &Path) -> Result<ReadTexts, Faults> {
    if path.is_dir() {
        return read_directory(path);
    }
    match source::read(path, FILE_BYTES_MAX) {
        Ok(text) => Ok(ReadTexts { text: JobsText::File(text), unreadable: Vec::new() }),
        Err(wrong) => Err(Faults::one(fault(path, wrong.code, wrong.to_string()))),
    }
}

/// Reads the files until none of them has changed meanwhile: a deployment that swaps a link must not be read by halves.
fn read_directory(path: &Path) -> Result<ReadTexts, Faults> {
    let list =
        || list(path).map_err(|error| of_directory(path, FaultCode::CannotRead, source::reason(&error)));
    let mut before = list()?;
    for _ in 0..READINGS_MAX {
        if before.is_empty() && path.extension().is_some_and(|it| it == "yaml" || it == "yml") {
            let text = "it is an empty directory; Docker makes one where the file of a mount is missing";
            return Err(of_directory(path, FaultCode::CannotRead, text));
        }
        if before.len() > FILES_MAX {
            let text =
                format!("more than {FILES_MAX} files *.yaml and *.yml; put more definitions into one file");
            return Err(of_directory(path, FaultCode::TooLong, text));
        }
        let read = read_files(path, before.iter().map(|file| &*file.name));
        let after = list()?;
        if after == before {
            return read;
        }
        before = after;
    }
    let text = "its files change while they are read; load them again once that has ended";
    Err(of_directory(path, FaultCode::CannotRead, text))
}

fn read_files<'n>(
    path: &Path,
    names: impl Iterator<Item = &'n std::ffi::OsStr>,
) -> Result<ReadTexts, Faults> {
    let (mut files, mut unreadable, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for name in names {
        let shown = name.to_string_lossy().replace(char::is_control, "\u{fffd}");
        if name.to_str() != Some(&*shown) {
            let reason = "its name has a character that cannot be shown; rename it";
            unreadable.push((shown, ValueFault::new(FaultCode::CannotRead, reason)));
            continue;
        }
        match source::read(&path.join(name), FILE_BYTES_MAX) {
            Ok(text) => {
                bytes += text.len();
                files.push(NamedText { name: shown, text });
            }
            Err(wrong) => unreadable.push((shown, wrong)),
        }
        if bytes > FILE_BYTES_MAX {
            return Err(of_directory(path, FaultCode::FileTooLarge, too_large()));
        }
    }
    Ok(ReadTexts { text: JobsText::Directory(files), unreadable })
}

/// The path of a directory as faults name it: its last part is a name.
pub(super) fn without_last_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The fault of files that are too large together.
pub(super) fn too_large() -> String {
    format!("its files are larger than {FILE_BYTES_MAX} bytes together")
}

fn of_directory(path: &Path, code: FaultCode, text: impl Into<String>) -> Faults {
    Faults::one(fault(&without_last_slash(path), code, text))
}

fn fault(path: &Path, code: FaultCode, text: impl Into<String>) -> Fault {
    Fault::of_file(&path.display().to_string(), code, text)
}

/// As file systems have it.
const NAME_BYTES_MAX: usize = 255;
/// Readings of a directory whose files change.
const READINGS_MAX: usize = 5;
