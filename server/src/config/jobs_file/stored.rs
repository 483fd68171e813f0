//! A definition as it is kept with its jobs: its resolved entry as JSON, with sorted keys. The hash of that text is the revision.
//!
//! It is made from the definition and not from the file, so neither comments nor formatting nor what only people look at can change
//! it. Every field is written even if it has its default: a default that changes later must not change what was submitted before.
//! A field that is added later is left out while it has its default, so that a new Longshore does not change every revision.

use std::time::Duration;

use protocol::Revision;
use protocol::container::{ContainerSpec, Resources, Volume};
use scheduler::definition::{Backoff, Definition, LossPolicy, RetryPolicy};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::keys;
use crate::store::StoredDefinition;

/// A stored definition cannot be read: it was damaged, or written by a newer Longshore.
#[derive(Debug, thiserror::Error)]
#[error("the stored definition {name} is damaged: {reason}")]
pub struct Damaged {
    /// The definition.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Sets the definition's revision and gives the form in which it is kept.
pub(super) fn store(definition: &mut Definition) -> StoredDefinition {
    let entry = StoredEntry::of(definition);
    #[expect(
        clippy::expect_used,
        reason = "strings, numbers, lists and maps with text keys always have a JSON form"
    )]
    let entry = serde_json::to_string(&entry).expect("a stored entry has a JSON form");
    definition.revision = revision_of(&entry);
    StoredDefinition { revision: definition.revision, name: definition.name.clone(), entry }
}

/// Reads a definition as it was stored.
///
/// # Errors
/// The entry is not what was once stored under this revision.
pub fn parse_stored(stored: &StoredDefinition) -> Result<Definition, Damaged> {
    let damaged = |reason: String| Damaged { name: stored.name.clone(), reason };
    if revision_of(&stored.entry) != stored.revision {
        return Err(damaged("its hash is another one".to_owned()));
    }
    let entry: StoredEntry =
        serde_json::from_str(&stored.entry).map_err(|error| damaged(error.to_string()))?;
    let mut definition = entry.definition().ok_or_else(|| damaged("it holds an unknown word".to_owned()))?;
    definition.revision = stored.revision;
    Ok(definition)
}

fn revision_of(entry: &str) -> Revision {
    let digest = Sha256::digest(entry.as_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    Revision(u128::from_be_bytes(first))
}

// The fields of each struct stand in alphabetical order: that is how the keys are sorted.

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredEntry {
    container: StoredContainer,
    enabled: bool,
    loss: StoredLoss,
    name: String,
    priority: i8,
    retry: StoredRetry,
    timeout_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredContainer {
    ask_before_start: bool,
    cap_add: Vec<String>,
    cap_drop: Vec<String>,
    command: Vec<String>,
    cpus_milli: Option<u32>,
    entrypoint: Option<Vec<String>>,
    environment: Vec<(String, String)>,
    image: String,
    init: bool,
    labels: Vec<(String, String)>,
    log_bytes_max: u64,
    memory_bytes: Option<u64>,
    network: Option<String>,
    pids: Option<u32>,
    platform: Option<String>,
    pull_policy: String,
    pull_timeout_ms: u64,
    read_only: bool,
    runtime: String,
    self_fence_ms: Option<u64>,
    stop_grace_ms: u64,
    stop_signal: Option<String>,
    tmpfs: Vec<String>,
    user: Option<String>,
    volumes: Vec<StoredVolume>,
    working_dir: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredVolume {
    read_only: bool,
    source: String,
    target: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRetry {
    backoff_factor_milli: u32,
    backoff_initial_ms: u64,
    backoff_max_ms: u64,
    exit_codes: Vec<i32>,
    max: u32,
    on: String,
    when: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLoss {
    after_ms: u64,
    limit: u32,
    on_lost: String,
}

impl StoredEntry {
    fn of(definition: &Definition) -> Self {
        Self {
            container: StoredContainer::of(&definition.container),
            enabled: definition.enabled,
            loss: StoredLoss {
                after_ms: milliseconds(definition.loss.after),
                limit: definition.loss.limit,
                on_lost: keys::name_of(&keys::ON_LOST, &definition.loss.on_lost).to_owned(),
            },
            name: definition.name.clone(),
            priority: definition.priority,
            retry: StoredRetry::of(&definition.retry),
            timeout_ms: definition.timeout.map(milliseconds),
        }
    }

    /// The definition without its revision; nothing if a word in it is unknown.
    fn definition(self) -> Option<Definition> {
        Some(Definition {
            name: self.name,
            revision: Revision::default(),
            enabled: self.enabled,
            priority: self.priority,
            timeout: self.timeout_ms.map(Duration::from_millis),
            retry: self.retry.policy()?,
            loss: LossPolicy {
                limit: self.loss.limit,
                after: Duration::from_millis(self.loss.after_ms),
                on_lost: value_of(&keys::ON_LOST, &self.loss.on_lost)?,
            },
            container: self.container.spec()?,
        })
    }
}

impl StoredContainer {
    fn of(spec: &ContainerSpec) -> Self {
        let volume = |volume: &Volume| StoredVolume {
            read_only: volume.read_only,
            source: volume.source.clone(),
            target: volume.target.clone(),
        };
        Self {
            ask_before_start: spec.ask_before_start,
            cap_add: spec.cap_add.clone(),
            cap_drop: spec.cap_drop.clone(),
            command: spec.command.clone(),
            cpus_milli: spec.resources.cpus_milli,
            entrypoint: spec.entrypoint.clone(),
            environment: spec.environment.clone(),
            image: spec.image.clone(),
            init: spec.init,
            labels: spec.labels.clone(),
            log_bytes_max: spec.log_bytes_max,
            memory_bytes: spec.resources.memory_bytes,
            network: spec.network.clone(),
            pids: spec.resources.pids,
            platform: spec.platform.clone(),
            pull_policy: keys::name_of(&keys::PULL_POLICIES, &spec.pull_policy).to_owned(),
            pull_timeout_ms: milliseconds(spec.pull_timeout),
            read_only: spec.read_only,
            runtime: spec.runtime.name().to_owned(),
            self_fence_ms: spec.self_fence.map(milliseconds),
            stop_grace_ms: milliseconds(spec.stop_grace),
            stop_signal: spec.stop_signal.clone(),
            tmpfs: spec.tmpfs.clone(),
            user: spec.user.clone(),
            volumes: spec.volumes.iter().map(volume).collect(),
            working_dir: spec.working_dir.clone(),
        }
    }

    fn spec(self) -> Option<ContainerSpec> {
        let volume = |volume: StoredVolume| Volume {
            source: volume.source,
            target: volume.target,
            read_only: volume.read_only,
        };
        Some(ContainerSpec {
            runtime: value_of(&keys::RUNTIMES, &self.runtime)?,
            image: self.image,
            entrypoint: self.entrypoint,
            command: self.command,
            environment: self.environment,
            working_dir: self.working_dir,
            user: self.user,
            volumes: self.volumes.into_iter().map(volume).collect(),
            network: self.network,
            tmpfs: self.tmpfs,
            read_only: self.read_only,
            cap_add: self.cap_add,
            cap_drop: self.cap_drop,
            init: self.init,
            platform: self.platform,
            labels: self.labels,
            pull_policy: value_of(&keys::PULL_POLICIES, &self.pull_policy)?,
            pull_timeout: Duration::from_millis(self.pull_timeout_ms),
            resources: Resources {
                cpus_milli: self.cpus_milli,
                memory_bytes: self.memory_bytes,
                pids: self.pids,
            },
            stop_signal: self.stop_signal,
            stop_grace: Duration::from_millis(self.stop_grace_ms),
            ask_before_start: self.ask_before_start,
            self_fence: self.self_fence_ms.map(Duration::from_millis),
            log_bytes_max: self.log_bytes_max,
        })
    }
}

impl StoredRetry {
    fn of(policy: &RetryPolicy) -> Self {
        Self {
            backoff_factor_milli: policy.backoff.factor_milli,
            backoff_initial_ms: milliseconds(policy.backoff.initial),
            backoff_max_ms: milliseconds(policy.backoff.max),
            exit_codes: policy.exit_codes.clone(),
            max: policy.max,
            on: keys::name_of(&keys::RETRY_ON, &policy.on).to_owned(),
            when: policy.when.iter().map(|outcome| outcome.name().to_owned()).collect(),
        }
    }

    fn policy(self) -> Option<RetryPolicy> {
        Some(RetryPolicy {
            max: self.max,
            when: self
                .when
                .iter()
                .map(|word| value_of(&keys::retry_outcomes(), word))
                .collect::<Option<_>>()?,
            exit_codes: self.exit_codes,
            on: value_of(&keys::RETRY_ON, &self.on)?,
            backoff: Backoff {
                initial: Duration::from_millis(self.backoff_initial_ms),
                max: Duration::from_millis(self.backoff_max_ms),
                factor_milli: self.backoff_factor_milli,
            },
        })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn value_of<T: Clone>(choices: &[(&'static str, T)], word: &str) -> Option<T> {
    choices.iter().find(|(name, _)| *name == word).map(|(_, value)| value.clone())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use super::*;

    type Texts = Vec<String>;

    fn text() -> impl Strategy<Value = String> {
        "\\PC{0,12}"
    }

    fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
        vec((text(), text()), 0..4)
    }

    fn duration() -> impl Strategy<Value = Duration> {
        (0..10_000_000_000_u64).prop_map(Duration::from_millis)
    }

    fn value<T: Clone + std::fmt::Debug + 'static>(choices: &[(&'static str, T)]) -> impl Strategy<Value = T> + use<T> {
        select(choices.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>())
    }

    fn words(spec: ContainerSpec) -> impl Strategy<Value = ContainerSpec> {
        let lists = (vec(text(), 0..4), option::of(vec(text(), 0..4)), vec(text(), 0..3), vec(text(), 0..3));
        let names = (text(), option::of(text()), option::of(text()), option::of(text()));
        (lists, names, pairs(), pairs()).prop_map(move |(lists, names, environment, labels)| {
            let (command, entrypoint, tmpfs, cap_add): (Texts, Option<Texts>, Texts, Texts) = lists;
            let (image, user, network, stop_signal) = names;
            let cap_drop = tmpfs.clone();
            let (working_dir, platform) = (user.clone(), network.clone());
            ContainerSpec {
                image,
                entrypoint,
                command,
                environment,
                labels,
                user,
                network,
                tmpfs,
                cap_add,
                cap_drop,
                working_dir,
                platform,
                stop_signal,
                ..spec.clone()
            }
        })
    }

    fn container() -> impl Strategy<Value = ContainerSpec> {
        let volume = (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| Volume {
            source,
            target,
            read_only,
        });
        let resources = any::<(Option<u32>, Option<u64>, Option<u32>)>()
            .prop_map(|(cpus_milli, memory_bytes, pids)| Resources { cpus_milli, memory_bytes, pids });
        let kinds = (value(&keys::RUNTIMES), value(&keys::PULL_POLICIES));
        let flags = any::<(bool, bool, bool, u64)>();
        let durations = (duration(), duration(), option::of(duration()));
        (vec(volume, 0..3), resources, kinds, flags, durations)
            .prop_map(|(volumes, resources, kinds, flags, durations)| ContainerSpec {
                runtime: kinds.0,
                pull_policy: kinds.1,
                volumes,
                resources,
                read_only: flags.0,
                init: flags.1,
                ask_before_start: flags.2,
                log_bytes_max: flags.3,
                pull_timeout: durations.0,
                stop_grace: durations.1,
                self_fence: durations.2,
                ..ContainerSpec::default()
            })
            .prop_flat_map(words)
    }

    fn retry() -> impl Strategy<Value = RetryPolicy> {
        let backoff = (duration(), duration(), any::<u32>())
            .prop_map(|(initial, max, factor_milli)| Backoff { initial, max, factor_milli });
        let when = subsequence(RetryPolicy::OWN_BUDGET.to_vec(), 0..=5);
        (any::<u32>(), when, vec(any::<i32>(), 0..4), value(&keys::RETRY_ON), backoff).prop_map(
            |(max, when, exit_codes, on, backoff)| RetryPolicy { max, when, exit_codes, on, backoff },
        )
    }

    fn definition() -> impl Strategy<Value = Definition> {
        let loss = (any::<u32>(), duration(), value(&keys::ON_LOST))
            .prop_map(|(limit, after, on_lost)| LossPolicy { limit, after, on_lost });
        let timeout = option::of(duration());
        (text(), any::<(bool, i8)>(), timeout, retry(), loss, container()).prop_map(
            |(name, (enabled, priority), timeout, retry, loss, container)| Definition {
                name,
                revision: Revision::default(),
                enabled,
                priority,
                timeout,
                retry,
                loss,
                container,
            },
        )
    }

    proptest! {
        #[test]
        fn a_stored_definition_is_read_back_as_it_was(mut definition in definition()) {
            let stored = store(&mut definition);
            prop_assert_eq!(parse_stored(&stored).expect("what was stored"), definition);
        }
    }

    #[test]
    fn the_stored_keys_are_sorted() {
        let text = "- {name: a, image: busybox, volumes: ['v:/v']}";
        let path = std::path::Path::new("jobs.yaml");
        let loaded = crate::config::jobs_file::parse(text, path, &Default::default()).expect("a good file");
        let entry = &loaded.definitions[0].stored.entry;
        assert_eq!(*entry, sorted(&serde_json::from_str(entry).expect("JSON")));
    }

    fn sorted(value: &serde_json::Value) -> String {
        match value {
            serde_json::Value::Object(map) => {
                let mut members: Vec<_> =
                    map.iter().map(|(key, value)| format!("{key:?}:{}", sorted(value))).collect();
                members.sort();
                format!("{{{}}}", members.join(","))
            }
            serde_json::Value::Array(items) => {
                format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(","))
            }
            simple => simple.to_string(),
        }
    }
}
