//! A definition as the store keeps it with its jobs: the resolved entry as JSON with sorted keys. The hash of that text is the revision.
//!
//! It is made from the definition and not from the file, so comments, formatting and descriptive keys cannot change it. Every field is
//! written even if it has its default: a default that changes later must not change jobs that were submitted before. A field that is added
//! later is left out while it has its default, so that a new Longshore does not change every revision.

use std::borrow::Cow;

use protocol::Revision;
use scheduler::definition::Definition;
use scheduler::params::Field;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stored_params::{self, StoredParams};
use crate::logs::{BYTES_MAX, BYTES_MAX_TO};
use crate::store::StoredDefinition;

/// The serde form of the definition, and the rules for its submissions.
#[derive(Serialize, Deserialize)]
struct StoredEntry<'d> {
    #[serde(flatten)]
    definition: Cow<'d, Definition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Cow<'d, [Field]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<StoredParams>,
}

/// A stored definition cannot be read: it was damaged, or written by a newer Longshore.
#[derive(Debug, thiserror::Error)]
#[error("the stored definition {name} is damaged: {reason}")]
pub struct Damaged {
    /// The name of the definition.
    pub name: String,
    /// The fault.
    pub reason: String,
}

/// Sets the definition's revision and returns its stored form.
pub(super) fn store(definition: &mut Definition) -> StoredDefinition {
    let entry = text_of(definition);
    definition.revision = revision_of(&entry);
    StoredDefinition { revision: definition.revision, name: definition.name.clone(), entry }
}

/// The limit `log.max_bytes` of a stored definition, in bytes. One that is missing, or that this version cannot read, has the largest limit,
/// so that none of its output is lost.
pub(crate) fn log_bytes_max(stored: Option<&StoredDefinition>) -> u64 {
    match stored.map(parse_stored) {
        Some(Ok(definition)) if definition.container.log_bytes_max == 0 => BYTES_MAX,
        Some(Ok(definition)) => definition.container.log_bytes_max,
        None | Some(Err(_)) => BYTES_MAX_TO,
    }
}

/// Parses a stored definition.
///
/// # Errors
/// The entry does not match this revision.
pub fn parse_stored(stored: &StoredDefinition) -> Result<Definition, Damaged> {
    let damaged = |reason: String| Damaged { name: stored.name.clone(), reason };
    if revision_of(&stored.entry) != stored.revision {
        return Err(damaged("its hash is another one".to_owned()));
    }
    let entry: StoredEntry<'_> =
        serde_json::from_str(&stored.entry).map_err(|error| damaged(error.to_string()))?;
    let mut definition = entry.definition.into_owned();
    definition.submission = stored_params::rules(entry.allow.map(Cow::into_owned), entry.params)
        .ok_or_else(|| damaged("it holds an unknown word".to_owned()))?;
    // A key that is not known here would be left out.
    if text_of(&definition) != stored.entry {
        return Err(damaged("it holds a key or value that is unknown to this version".to_owned()));
    }
    definition.revision = stored.revision;
    Ok(definition)
}

/// The JSON text with sorted keys.
#[expect(
    clippy::expect_used,
    reason = "strings, numbers, lists and maps with text keys always have a JSON form"
)]
fn text_of(definition: &Definition) -> String {
    let entry = StoredEntry {
        definition: Cow::Borrowed(definition),
        allow: definition.submission.allow.as_deref().map(Cow::Borrowed),
        params: StoredParams::of(&definition.submission.params),
    };
    // The maps of a JSON value are sorted by key.
    serde_json::to_value(&entry).expect("a stored entry has a JSON form").to_string()
}

fn revision_of(entry: &str) -> Revision {
    let digest = Sha256::digest(entry.as_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    Revision(u128::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use protocol::WorkerId;
    use protocol::container::{ContainerSpec, Resources, Volume};
    use scheduler::definition::{Backoff, Delays, Expect, LossPolicy, RetryPolicy, WaitLimits};
    use scheduler::limits::rules::{Clear, KeySource, LimitRules, OnDuplicate, UniqueRule};
    use scheduler::placement::rules::{
        Comparison, Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, RunOn,
        WorkerSelector,
    };
    use scheduler::schedule::Timetable;

    use super::*;
    use crate::config::jobs_file::keys;

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

    fn value<T: Clone + std::fmt::Debug + 'static>(
        choices: &[(&'static str, T)],
    ) -> impl Strategy<Value = T> + use<T> {
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
        let resources =
            any::<(Option<u32>, Option<u64>, Option<u32>)>().prop_map(|(cpus_milli, memory_bytes, pids)| {
                Resources {
                    custom: Default::default(),
                    gpus: Default::default(),
                    cpus_milli,
                    memory_bytes,
                    pids,
                }
            });
        let kinds = (value(&keys::RUNTIMES), value(&keys::PULL_POLICIES));
        let flags = any::<(bool, bool, bool, u64, Option<u64>)>();
        let texts = (vec(text(), 0..3), option::of(text()));
        let durations = (duration(), duration(), option::of(duration()));
        (vec(volume, 0..3), resources, kinds, flags, durations, texts)
            .prop_map(|(volumes, resources, kinds, flags, durations, (log_mask, input))| ContainerSpec {
                runtime: kinds.0,
                pull_policy: kinds.1,
                volumes,
                resources,
                read_only: flags.0,
                init: flags.1,
                ask_before_start: flags.2,
                log_bytes_max: flags.3,
                shm_bytes: flags.4,
                log_mask,
                input,
                pull_timeout: durations.0,
                stop_grace: durations.1,
                self_fence: durations.2,
                ..ContainerSpec::default()
            })
            .prop_flat_map(words)
    }

    fn retry() -> impl Strategy<Value = RetryPolicy> {
        let delays = prop_oneof![
            (duration(), duration(), any::<u32>())
                .prop_map(|(initial, max, factor_milli)| Delays::Exponential { initial, max, factor_milli }),
            (duration(), duration()).prop_map(|(initial, max)| Delays::Linear { initial, max }),
            duration().prop_map(Delays::Fixed),
            vec(duration(), 0..4).prop_map(Delays::List),
        ];
        let backoff = (delays, prop_oneof![Just(1_000), any::<u32>()])
            .prop_map(|(delays, jitter_milli)| Backoff { delays, jitter_milli });
        let when = subsequence(RetryPolicy::JOB_BUDGET.to_vec(), 0..=5);
        let numbers = (any::<u32>(), option::of(any::<u32>()));
        (numbers, when, vec(any::<i32>(), 0..4), value(&keys::RETRY_ON), backoff).prop_map(
            |((max, memory_factor_milli), when, exit_codes, on, backoff)| RetryPolicy {
                max,
                when,
                exit_codes,
                on,
                backoff,
                memory_factor_milli,
            },
        )
    }

    fn label_rule() -> impl Strategy<Value = LabelRule> {
        let condition = prop_oneof![
            vec(text(), 1..3).prop_map(Condition::In),
            vec(text(), 1..3).prop_map(Condition::NotIn),
            Just(Condition::Exists),
            Just(Condition::Absent),
            (select(Comparison::ALL.to_vec()), any::<i64>())
                .prop_map(|(comparison, bound)| Condition::Compare(comparison, bound)),
        ];
        (text(), condition).prop_map(|(label, condition)| LabelRule { label, condition })
    }

    fn placement() -> impl Strategy<Value = PlacementRules> {
        let preference = (label_rule(), any::<i32>()).prop_map(|(rule, weight)| Preference { rule, weight });
        let selector = prop_oneof![
            any::<u64>().prop_map(|id| WorkerSelector::Id(WorkerId(id))),
            text().prop_map(WorkerSelector::Name),
        ];
        let lists = (vec(label_rule(), 0..3), vec(preference, 0..3), vec(selector, 0..3));
        let run_on = select(vec![RunOn::One, RunOn::All, RunOn::Count(2), RunOn::Count(1_000)]);
        (lists, select(PlacementStrategy::ALL.to_vec()), run_on).prop_map(
            |((requires, prefers, workers), strategy, run_on)| PlacementRules {
                requires,
                prefers,
                workers,
                strategy,
                run_on,
            },
        )
    }

    fn unique() -> impl Strategy<Value = UniqueRule> {
        let key = prop_oneof![
            text().prop_map(|value| KeySource::Constant(value.as_str().into())),
            text().prop_map(KeySource::Label),
            text().prop_map(KeySource::Param),
        ];
        let clear = select(vec![Clear::Always, Clear::Success, Clear::Failed]);
        (option::of(key), value(&OnDuplicate::ALL), clear).prop_map(|(key, on_duplicate, clear)| UniqueRule {
            key,
            on_duplicate,
            clear,
        })
    }

    fn definition() -> impl Strategy<Value = Definition> {
        let times = (duration(), option::of(duration()), option::of(duration()));
        let loss = (any::<u32>(), value(&keys::ON_LOST), times).prop_map(
            |(limit, on_lost, (after, delay, heartbeat))| LossPolicy {
                limit,
                after,
                on_lost,
                delay,
                heartbeat,
            },
        );
        let waits = (option::of(duration()), option::of(duration()), option::of(duration()))
            .prop_map(|(queue, quarantine, silent_worker)| WaitLimits { queue, quarantine, silent_worker });
        let timeout = option::of(duration());
        let rules = (loss, waits, placement(), option::of(unique()));
        let ends = (retry(), vec(any::<i32>(), 0..3));
        (text(), any::<(bool, i8)>(), timeout, ends, rules, container()).prop_map(
            |(name, (enabled, priority), timeout, ends, (loss, waits, placement, unique), container)| {
                let (retry, success_exit_codes) = ends;
                Definition {
                    name,
                    revision: Revision::default(),
                    enabled,
                    priority,
                    timeout,
                    retry,
                    success_exit_codes,
                    loss,
                    waits,
                    expect: Expect::default(),
                    placement,
                    timetable: Timetable::default(),
                    hooks: Default::default(),
                    secrets: Default::default(),
                    submission: Default::default(),
                    limits: LimitRules { unique, ..LimitRules::default() },
                    container,
                }
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
