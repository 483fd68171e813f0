//! The policy of the server (`--policy FILE`): limits on what definitions may do, set by those who run the server.
//!
//! A rule without roles holds for each load of jobs.yaml: a definition that breaks it is a fault of the file. A rule with roles holds when
//! somebody with such a role makes a job. All rules that name a definition hold together; a rule can forbid, never allow what another one
//! forbids. The worker has a policy of its own (`--allow-mount` and others), which holds besides.

mod read;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use protocol::RuntimeKind;
use protocol::container::{ContainerSpec, Volume};
use scheduler::definition::Definition;
use scheduler::job::AttemptTimeout;

pub use read::{PolicyError, load, load_optional};
use serde::Deserialize;
use values::AllowedVolume;

use crate::auth::role::Role;
use crate::config::jobs_file::quantity::{self, DurationText, bytes};
use crate::wildcard::matches;

/// The rules of a policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// One rule, as the file has it. An absent part limits nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Names of definitions, with `*` for any text.
    #[serde(default = "values::all_definitions")]
    definitions: Vec<String>,
    /// Roles of those who make the job; empty: the rule holds for the definition itself.
    #[serde(default, deserialize_with = "values::roles")]
    roles: Vec<Role>,
    #[serde(default = "values::docker_only", deserialize_with = "values::runtimes")]
    runtimes: Vec<RuntimeKind>,
    images: Option<Vec<String>>,
    volumes: Option<Vec<AllowedVolume>>,
    networks: Option<Vec<String>>,
    users: Option<Vec<String>>,
    /// Of `group_add`. Absent beside `users`: none.
    groups: Option<Vec<String>>,
    cap_add: Option<Vec<String>>,
    secrets: Option<Vec<String>>,
    /// In thousandths of a core.
    #[serde(default, rename = "max_cpus", deserialize_with = "values::cpus")]
    max_cpus_milli: Option<u32>,
    #[serde(default, rename = "max_memory", deserialize_with = "values::memory")]
    max_memory_bytes: Option<u64>,
    max_pids: Option<u32>,
    max_gpus: Option<u32>,
    /// Custom resources by name, with the most of each. Others are forbidden.
    max_custom: Option<BTreeMap<String, u32>>,
    #[serde(default, rename = "max_shm_size", deserialize_with = "values::memory")]
    max_shm_bytes: Option<u64>,
    /// Of all memory file systems together.
    #[serde(default, rename = "max_tmpfs", deserialize_with = "values::memory")]
    max_tmpfs_bytes: Option<u64>,
    #[serde(default, deserialize_with = "values::timeout")]
    max_timeout: Option<Duration>,
}

/// A part of a rule that a definition breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the rule in its file, from 1.
    pub rule: usize,
    /// The key of the definition.
    pub key: &'static str,
    /// The reason, in words.
    pub reason: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (rule {} of the server's policy)", self.key, self.reason, self.rule)
    }
}

impl Policy {
    /// The rules for every load that a definition breaks.
    #[must_use]
    pub fn check_definition(&self, definition: &Definition) -> Vec<Violation> {
        self.check(definition, definition.timeout, |rule| rule.roles.is_empty())
    }

    /// The rules that a job of a definition breaks if somebody with this role makes it. `own` is the job's own timeout. An older revision
    /// may break rules for every load.
    #[must_use]
    pub fn check_submission(
        &self,
        definition: &Definition,
        own: Option<AttemptTimeout>,
        role: Role,
    ) -> Vec<Violation> {
        let timeout = own.map_or(definition.timeout, AttemptTimeout::limit);
        self.check(definition, timeout, |rule| rule.roles.is_empty() || rule.roles.contains(&role))
    }

    fn check(
        &self,
        definition: &Definition,
        timeout: Option<Duration>,
        holds: impl Fn(&Rule) -> bool,
    ) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (number, rule) in (1..).zip(&self.rules) {
            if holds(rule) && allows(&rule.definitions, &definition.name) {
                let broken = rule.broken_by(definition, timeout).0.into_iter();
                violations.extend(broken.map(|(key, reason)| Violation { rule: number, key, reason }));
            }
        }
        violations
    }
}

impl Rule {
    fn broken_by(&self, definition: &Definition, timeout: Option<Duration>) -> Broken {
        let spec = &definition.container;
        let mut broken = Broken::default();
        if !self.runtimes.contains(&spec.runtime) {
            broken.add("runtime", spec.runtime);
        }
        broken.check_most("timeout", timeout, self.max_timeout, |timeout| DurationText(timeout).to_string());
        if let Some(allowed) = &self.secrets {
            let variables = definition.secrets.variables.iter().map(|(_, secret)| secret);
            let named = definition.secrets.files.iter().chain(variables);
            named.filter(|name| !allows(allowed, name)).for_each(|name| broken.add("secrets", name));
        }
        self.check_reserved(spec, &mut broken);
        if spec.runtime == RuntimeKind::Docker {
            self.check_memory_files(spec, &mut broken);
            self.check_container(spec, &mut broken);
            // The last attempt may have most.
            let memory = definition.raised_memory(definition.retry.max).or(spec.resources.memory_bytes);
            broken.check_most("resources.memory", memory, self.max_memory_bytes, bytes);
        }
        broken
    }

    /// GPUs and custom resources, which plain processes reserve as well.
    fn check_reserved(&self, spec: &ContainerSpec, broken: &mut Broken) {
        broken
            .check_most("resources.gpus", Some(spec.resources.gpus), self.max_gpus, |gpus| gpus.to_string());
        let Some(allowed) = &self.max_custom else { return };
        for (name, amount) in &spec.resources.custom {
            match allowed.get(name) {
                None => broken.add("resources.custom", name),
                Some(most) if amount > most => {
                    broken.0.push(("resources.custom", format!("{amount} of {name} is above {most}")));
                }
                Some(_) => {}
            }
        }
    }

    /// Files in memory. A definition without `shm_size` has the engine's default, which is small.
    fn check_memory_files(&self, spec: &ContainerSpec, broken: &mut Broken) {
        if spec.shm_bytes.is_some() {
            broken.check_most("shm_size", spec.shm_bytes, self.max_shm_bytes, bytes);
        }
        let Some(most) = self.max_tmpfs_bytes else { return };
        let mut sum = 0_u64;
        for mount in &spec.tmpfs {
            match tmpfs_bytes(mount) {
                Some(size) => sum = sum.saturating_add(size),
                None => {
                    let path = mount.split(':').next().unwrap_or_default();
                    return broken
                        .0
                        .push(("tmpfs", format!("{path} needs the option size, as in {path}:size=64m")));
                }
            }
        }
        if sum > most {
            broken.0.push(("tmpfs", format!("{} together is above {}", bytes(sum), bytes(most))));
        }
    }

    fn check_container(&self, spec: &ContainerSpec, broken: &mut Broken) {
        if self.images.as_ref().is_some_and(|images| !allows(images, &spec.image)) {
            broken.add("image", &spec.image);
        }
        if let Some(allowed) = &self.volumes {
            let forbidden = spec.volumes.iter().filter(|volume| !allowed.iter().any(|it| it.allows(volume)));
            for Volume { source, read_only, .. } in forbidden {
                let access = if *read_only { "" } else { " for writing" };
                broken.0.push(("volumes", format!("{source} is not allowed{access}")));
            }
        }
        let network = spec.network.as_deref().unwrap_or("bridge");
        if self.networks.as_ref().is_some_and(|networks| !allows(networks, network)) {
            broken.add("network", network);
        }
        match (&self.users, &spec.user) {
            (Some(_), None) => broken.0.push(("user", "the image's own is not allowed; set one".to_owned())),
            (Some(users), Some(user)) if !allows(users, user) => broken.add("user", user),
            _ => {}
        }
        // A further group is as good as another user where files belong to it.
        let groups = self.groups.as_deref().or_else(|| self.users.as_ref().map(|_| &[][..]));
        if let Some(allowed) = groups {
            let forbidden = spec.options.group_add.iter().filter(|group| !allows(allowed, group));
            forbidden.for_each(|group| broken.add("group_add", group));
        }
        if let Some(allowed) = &self.cap_add {
            let forbidden = spec.cap_add.iter().filter(|capability| !allows(allowed, capability));
            forbidden.for_each(|capability| broken.add("cap_add", capability));
        }
        let resources = &spec.resources;
        let cpus = |milli: u32| (f64::from(milli) / 1_000.0).to_string();
        broken.check_most("resources.cpus", resources.cpus_milli, self.max_cpus_milli, cpus);
        broken.check_most("resources.pids", resources.pids, self.max_pids, |pids| pids.to_string());
    }
}

/// Keys of a definition that break a rule, with the reasons.
#[derive(Debug, Default)]
struct Broken(Vec<(&'static str, String)>);

impl Broken {
    fn add(&mut self, key: &'static str, value: impl fmt::Display) {
        self.0.push((key, format!("{value} is not allowed")));
    }

    /// Adds the key if its value is above a bound. A value that is not set is above every bound.
    fn check_most<T: PartialOrd + Copy>(
        &mut self,
        key: &'static str,
        value: Option<T>,
        most: Option<T>,
        shown: impl Fn(T) -> String,
    ) {
        let Some(most) = most else { return };
        match value {
            None => self.0.push((key, format!("it must be set, to at most {}", shown(most)))),
            Some(value) if value > most => {
                self.0.push((key, format!("{} is above {}", shown(value), shown(most))));
            }
            Some(_) => {}
        }
    }
}

/// The size of a memory file system, if its options bound it by a size in bytes.
fn tmpfs_bytes(mount: &str) -> Option<u64> {
    let options = mount.split_once(':')?.1;
    let mut size = None;
    for option in options.split(',') {
        match option.split_once('=') {
            // The kernel takes the last one.
            Some(("size", text)) => size = Some(quantity::size(text, 0, u64::MAX).ok()?),
            // It is another way to set the size, in pages.
            Some(("nr_blocks", _)) => return None,
            _ => {}
        }
    }
    // Zero means no bound.
    size.filter(|size| *size > 0)
}

/// One of the patterns fits.
fn allows(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, text))
}

impl AllowedVolume {
    fn allows(&self, volume: &Volume) -> bool {
        if self.read_only && !volume.read_only {
            return false;
        }
        match (self.source.starts_with('/'), volume.is_bind()) {
            // By components, so that /srv/data does not allow /srv/data2. jobs.yaml takes no path with `..`.
            (true, true) => Path::new(&volume.source).starts_with(&self.source),
            (false, false) => matches(&self.source, &volume.source),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
