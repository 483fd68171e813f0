//! The values of a rule, as a policy file has them.

use std::fmt::Display;
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::container::MEMORY_BYTES_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::auth::role::Role;
use crate::config::jobs_file::{grammar, quantity};

/// A volume that a rule allows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct AllowedVolume {
    /// A path of the host with all below it, or the name of a volume with `*` for any text.
    pub(super) source: String,
    pub(super) read_only: bool,
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
        let fits = match source.starts_with('/') {
            true => !source.split('/').any(|part| part == "..") && !source.contains([':', '*']),
            false => grammar::is_docker_name(&source.replace('*', "x")),
        };
        if !fits {
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
