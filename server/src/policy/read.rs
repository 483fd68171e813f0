//! Reads a policy file.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::{Policy, Rule};
use crate::file_version::FileVersion;

/// A policy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot read the policy {}: {cause}", path.display())]
    Read {
        /// The path as given.
        path: PathBuf,
        /// The cause, which is part of the text.
        cause: io::Error,
    },
    /// The file is no policy.
    #[error("the policy {} is not valid: {reason}", path.display())]
    Invalid {
        /// The path as given.
        path: PathBuf,
        /// The first fault, with its line and column.
        reason: String,
    },
}

/// As [`load`]; without a file there is no rule.
///
/// # Errors
/// As [`load`].
pub fn load_optional(path: Option<&Path>) -> Result<Arc<Policy>, PolicyError> {
    path.map_or_else(|| Ok(Arc::default()), |path| load(path).map(Arc::new))
}

/// Reads a policy file. Blocks on the disk.
///
/// # Errors
/// The file cannot be read, or is not valid: then the first fault.
pub fn load(path: &Path) -> Result<Policy, PolicyError> {
    let text = read(path).map_err(|cause| PolicyError::Read { path: path.to_owned(), cause })?;
    parse(&text).map_err(|reason| PolicyError::Invalid { path: path.to_owned(), reason })
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Parses the text of a policy file; the error is the first fault, with its line and column.
pub(super) fn parse(text: &str) -> Result<Policy, String> {
    let file: PolicyFile = serde_yaml::from_str(text).map_err(|error| {
        // The first line says what and where; an excerpt follows.
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    Ok(Policy { rules: file.rules })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default, rename = "version")]
    _version: FileVersion,
    rules: Vec<Rule>,
}

/// Bytes of the largest policy file: thousands of rules.
const FILE_BYTES_MAX: u64 = 1 << 20;
