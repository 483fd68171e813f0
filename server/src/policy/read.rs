//! Reads a policy file.

use std::fmt::Display;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::container::MEMORY_BYTES_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{AllowedVolume, Policy, Rule};
use crate::auth::role::Role;
use crate::config::jobs_file::quantity;

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
    _version: Version,
    rules: Vec<Rule>,
}

/// The one version of the file.
#[derive(Default, Deserialize)]
#[serde(try_from = "u32")]
struct Version;

impl TryFrom<u32> for Version {
    type Error = &'static str;

    fn try_from(version: u32) -> Result<Self, Self::Error> {
        if version == 1 { Ok(Self) } else { Err("this Longshore reads version 1") }
    }
}

/// A role that may make jobs.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct JobRole(Role);

impl TryFrom<String> for JobRole {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let makes_jobs = [Role::Submitter, Role::Operator, Role::Admin];
        let found = Role::find(&name).filter(|role| makes_jobs.contains(role)).map(Self);
        found.ok_or_else(|| {
            format!("{name:?} is not submitter, operator or admin, the roles that may make jobs")
        })
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct RuntimeName(RuntimeKind);

impl TryFrom<String> for RuntimeName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let found = RuntimeKind::ALL.into_iter().find(|kind| kind.name() == name).map(Self);
        found.ok_or_else(|| format!("{name:?} is not docker, process or fake"))
    }
}

impl TryFrom<String> for AllowedVolume {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (source, read_only) = match text.strip_suffix(":ro") {
            Some(source) => (source, true),
            None => (text.as_str(), false),
        };
        let is_pattern_of_paths = source.starts_with('/') && source.contains('*');
        if source.is_empty() || source.contains(':') || source.contains("..") || is_pattern_of_paths {
            return Err(format!(
                "{text:?} is neither an absolute path, with all that is below it, nor the name of a volume; either may end with :ro"
            ));
        }
        Ok(Self { source: source.to_owned(), read_only })
    }
}

pub(super) fn all_definitions() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Plain subprocesses and pretended runs are outside of all that the other parts limit, so a rule must name them.
pub(super) fn docker_only() -> Vec<RuntimeKind> {
    vec![RuntimeKind::Docker]
}

pub(super) fn roles<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Role>, D::Error> {
    Vec::<JobRole>::deserialize(from).map(|roles| roles.into_iter().map(|role| role.0).collect())
}

pub(super) fn runtimes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RuntimeKind>, D::Error> {
    Vec::<RuntimeName>::deserialize(from).map(|names| names.into_iter().map(|name| name.0).collect())
}

pub(super) fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    bound(from, |text| quantity::thousandths(text, 1, u32::MAX))
}

pub(super) fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bound(from, |text| quantity::size(text, 1, MEMORY_BYTES_MAX))
}

pub(super) fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    bound(from, |text| quantity::duration(text, Duration::from_secs(1), Duration::MAX))
}

/// A bound in the form that jobs.yaml has for it.
fn bound<'de, D: Deserializer<'de>, T, E: Display>(
    from: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map(Some).map_err(D::Error::custom)
}

/// Bytes of the largest policy file: thousands of rules.
const FILE_BYTES_MAX: u64 = 1 << 20;
