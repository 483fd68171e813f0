//! Reads a policy file.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::container::MEMORY_BYTES_MAX;
use serde::Deserialize;

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

/// Parses the text of a policy file; the error is the first fault.
pub(super) fn parse(text: &str) -> Result<Policy, String> {
    let file: PolicyText = serde_yaml::from_str(text).map_err(|error| {
        // The first line says what and where; an excerpt follows.
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    if file.version.is_some_and(|version| version != 1) {
        return Err("version: this Longshore reads version 1".to_owned());
    }
    let rules = (1..)
        .zip(file.rules)
        .map(|(number, rule)| rule.check().map_err(|reason| format!("rule {number}: {reason}")));
    Ok(Policy { rules: rules.collect::<Result<_, _>>()? })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    version: Option<u32>,
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    definitions: Option<Vec<String>>,
    #[serde(default)]
    roles: Vec<String>,
    runtimes: Option<Vec<String>>,
    images: Option<Vec<String>>,
    volumes: Option<Vec<String>>,
    networks: Option<Vec<String>>,
    users: Option<Vec<String>>,
    cap_add: Option<Vec<String>>,
    secrets: Option<Vec<String>>,
    max_cpus: Option<String>,
    max_memory: Option<String>,
    max_pids: Option<u32>,
    max_timeout: Option<String>,
}

impl RuleText {
    fn check(self) -> Result<Rule, String> {
        let cpus = |text: String| quantity::thousandths(&text, 1, u32::MAX);
        let memory = |text: String| quantity::size(&text, 1, MEMORY_BYTES_MAX);
        let timeout = |text: String| quantity::duration(&text, Duration::from_secs(1), Duration::MAX);
        let within = |key: &'static str| move |wrong: _| format!("{key}: {wrong}");
        // Plain subprocesses and pretended runs are outside of all that the other parts limit.
        let runtimes = self.runtimes.unwrap_or_else(|| vec![RuntimeKind::Docker.name().to_owned()]);
        Ok(Rule {
            definitions: self.definitions.unwrap_or_else(|| vec!["*".to_owned()]),
            roles: self.roles.iter().map(|name| role(name)).collect::<Result<_, _>>()?,
            runtimes: runtimes.iter().map(|name| runtime(name)).collect::<Result<_, _>>()?,
            images: self.images,
            volumes: self
                .volumes
                .map(|list| list.iter().map(|it| volume(it)).collect::<Result<_, _>>())
                .transpose()?,
            networks: self.networks,
            users: self.users,
            cap_add: self.cap_add,
            secrets: self.secrets,
            max_cpus_milli: self.max_cpus.map(cpus).transpose().map_err(within("max_cpus"))?,
            max_memory_bytes: self.max_memory.map(memory).transpose().map_err(within("max_memory"))?,
            max_pids: self.max_pids,
            max_timeout: self.max_timeout.map(timeout).transpose().map_err(within("max_timeout"))?,
        })
    }
}

fn role(name: &str) -> Result<Role, String> {
    let makes_jobs = [Role::Submitter, Role::Operator, Role::Admin];
    Role::find(name).filter(|role| makes_jobs.contains(role)).ok_or_else(|| {
        format!("roles: {name:?} is not submitter, operator or admin, the roles that may make jobs")
    })
}

fn runtime(name: &str) -> Result<RuntimeKind, String> {
    let found = RuntimeKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("runtimes: {name:?} is not docker, process or fake"))
}

fn volume(text: &str) -> Result<AllowedVolume, String> {
    let (source, read_only) = match text.strip_suffix(":ro") {
        Some(source) => (source, true),
        None => (text, false),
    };
    let is_path = source.starts_with('/');
    if source.is_empty()
        || source.contains(':')
        || (is_path && source.contains(['*']))
        || source.contains("..")
    {
        return Err(format!(
            "volumes: {text:?} is neither an absolute path, with all that is below it, nor the name of a volume; either may end with :ro"
        ));
    }
    Ok(AllowedVolume { source: source.to_owned(), read_only })
}

/// Bytes of the largest policy file: thousands of rules.
const FILE_BYTES_MAX: u64 = 1 << 20;
