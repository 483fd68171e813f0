//! The files that are imported, and what is said when one cannot be.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure};
use crate::screen;

/// A file with its text.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// As the command line names it.
    pub(super) name: String,
    /// Absent for standard input.
    pub(super) path: Option<PathBuf>,
    /// Without a byte order mark; lines end with `\n`.
    pub(super) text: String,
}

impl Source {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read, is too long, or is not text.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let mut bytes = Vec::new();
        let limit = FILE_BYTES_MAX + 1;
        let read = match is_stdin {
            true => std::io::stdin().take(limit).read_to_end(&mut bytes),
            false => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        };
        let refused = |text: String| Failure::new(Exit::Usage, format!("{name}: {text}"));
        read.map_err(|error| refused(format!("cannot read it: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(refused(format!("the file is too long (at most {FILE_BYTES_MAX} bytes)")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            refused(format!("not UTF-8 text at byte {}", error.utf8_error().valid_up_to()))
        })?;
        if text.contains('\0') {
            return Err(refused("it is not a text file, because it holds a NUL character".to_owned()));
        }
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        Ok(Self { name, path: (!is_stdin).then(|| path.to_owned()), text })
    }

    /// The last part of the name.
    pub(super) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// Something that is wrong in it. Line 0 is the file as a whole.
    pub(super) fn fault(&self, line: usize, text: impl Into<String>) -> Fault {
        Fault { file: self.name.clone(), line, text: text.into() }
    }
}

/// Something wrong in a file: what, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    file: String,
    line: usize,
    text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// All that is wrong; at least one fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl Faults {
    /// Shows all faults but the last, which the failure tells.
    pub(super) fn into_failure(self) -> Failure {
        let Some((last, others)) = self.0.split_last() else {
            return Failure::new(Exit::Usage, "the file cannot be imported");
        };
        for fault in others {
            screen::note(&format!("error: {fault}"));
        }
        Failure::new(Exit::Usage, last.to_string())
    }
}

/// Far more than any such file of a person, and little enough to read at once.
const FILE_BYTES_MAX: u64 = 4 << 20;
