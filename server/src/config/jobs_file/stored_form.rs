//! The serde types of a stored definition, and the conversion in both directions.

use std::time::Duration;

use protocol::Revision;
use protocol::container::{ContainerSpec, Resources, Volume};
use scheduler::definition::{
    Backoff, Definition, Delays, Expect, LossPolicy, RetryPolicy, SecretRefs, WaitLimits,
};
use scheduler::hooks::{HookEvent, Hooks};
use scheduler::schedule::Timetable;
use serde::{Deserialize, Serialize};

use super::keys::{self, BackoffKind};
use super::stored_limits::StoredLimits;
use super::stored_params::{self, StoredParams};
use super::stored_placement::StoredPlacement;

// The fields of each struct are in alphabetical order: serde writes them so, and the keys must be sorted.

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<String>>,
    container: StoredContainer,
    enabled: bool,
    #[serde(default, skip_serializing_if = "StoredHooks::is_empty")]
    hooks: StoredHooks,
    #[serde(default, skip_serializing_if = "StoredLimits::is_empty")]
    limits: StoredLimits,
    loss: StoredLoss,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<StoredParams>,
    #[serde(default, skip_serializing_if = "StoredPlacement::is_default")]
    placement: StoredPlacement,
    priority: i8,
    retry: StoredRetry,
    #[serde(default, skip_serializing_if = "StoredSecrets::is_empty")]
    secrets: StoredSecrets,
    timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "StoredWaits::is_unlimited")]
    waits: StoredWaits,
}

/// Names of secrets.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoredSecrets {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<(String, String)>,
}

impl StoredSecrets {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.variables.is_empty()
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoredHooks {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_end: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_failure: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_start: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_success: Vec<String>,
}

impl StoredHooks {
    fn of(hooks: &Hooks) -> Self {
        let names = |event| hooks.of(event).iter().map(ToString::to_string).collect();
        Self {
            on_end: names(HookEvent::End),
            on_failure: names(HookEvent::Failure),
            on_start: names(HookEvent::Start),
            on_success: names(HookEvent::Success),
        }
    }

    fn hooks(self) -> Hooks {
        let names = |names: Vec<String>| names.into_iter().map(Into::into).collect();
        Hooks {
            on_start: names(self.on_start),
            on_success: names(self.on_success),
            on_failure: names(self.on_failure),
            on_end: names(self.on_end),
        }
    }

    fn is_empty(&self) -> bool {
        [&self.on_end, &self.on_failure, &self.on_start, &self.on_success].iter().all(|list| list.is_empty())
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoredWaits {
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantine_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_worker_ms: Option<u64>,
}

impl StoredWaits {
    fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    backoff_delays_ms: Vec<u64>,
    backoff_factor_milli: u32,
    backoff_initial_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff_jitter_milli: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff_kind: Option<String>,
    backoff_max_ms: u64,
    exit_codes: Vec<i32>,
    max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_factor_milli: Option<u32>,
    on: String,
    when: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLoss {
    after_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    limit: u32,
    on_lost: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ping_ms: Option<u64>,
}

impl StoredEntry {
    pub(super) fn of(definition: &Definition) -> Self {
        Self {
            allow: stored_params::allow_of(&definition.submission),
            container: StoredContainer::of(&definition.container),
            enabled: definition.enabled,
            hooks: StoredHooks::of(&definition.hooks),
            limits: StoredLimits::of(&definition.limits),
            loss: StoredLoss {
                after_ms: milliseconds(definition.loss.after),
                delay_ms: definition.loss.delay.map(milliseconds),
                limit: definition.loss.limit,
                on_lost: keys::name_of(&keys::ON_LOST, &definition.loss.on_lost).to_owned(),
                ping_ms: definition.loss.ping.map(milliseconds),
            },
            name: definition.name.clone(),
            params: StoredParams::of(&definition.submission.params),
            placement: StoredPlacement::of(&definition.placement),
            priority: definition.priority,
            retry: StoredRetry::of(&definition.retry),
            secrets: StoredSecrets {
                files: definition.secrets.files.clone(),
                variables: definition.secrets.variables.clone(),
            },
            timeout_ms: definition.timeout.map(milliseconds),
            waits: StoredWaits {
                quarantine_ms: definition.waits.quarantine.map(milliseconds),
                queue_ms: definition.waits.queue.map(milliseconds),
                silent_worker_ms: definition.waits.silent_worker.map(milliseconds),
            },
        }
    }

    /// The definition without its revision; `None` if a word in it is unknown.
    pub(super) fn definition(self) -> Option<Definition> {
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
                delay: self.loss.delay_ms.map(Duration::from_millis),
                ping: self.loss.ping_ms.map(Duration::from_millis),
            },
            waits: WaitLimits {
                queue: self.waits.queue_ms.map(Duration::from_millis),
                quarantine: self.waits.quarantine_ms.map(Duration::from_millis),
                silent_worker: self.waits.silent_worker_ms.map(Duration::from_millis),
            },
            // Not kept with jobs: the name's present expectation holds for all of them.
            expect: Expect::default(),
            placement: self.placement.rules()?,
            // Not kept with jobs: schedules make jobs of the definition as it is now.
            timetable: Timetable::default(),
            hooks: self.hooks.hooks(),
            submission: stored_params::rules(self.allow, self.params)?,
            limits: self.limits.rules()?,
            secrets: SecretRefs { files: self.secrets.files, variables: self.secrets.variables },
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
        let Backoff { delays, jitter_milli } = &policy.backoff;
        let kind = keys::kind_of(delays);
        Self {
            backoff_delays_ms: delays.list().iter().copied().map(milliseconds).collect(),
            backoff_factor_milli: delays.factor_milli(),
            backoff_initial_ms: milliseconds(delays.first()),
            backoff_jitter_milli: Some(*jitter_milli).filter(|it| *it != Backoff::FULL_JITTER_MILLI),
            backoff_kind: (kind != BackoffKind::Exponential)
                .then(|| keys::name_of(&keys::BACKOFF_KINDS, &kind).to_owned()),
            backoff_max_ms: milliseconds(delays.highest()),
            exit_codes: policy.exit_codes.clone(),
            max: policy.max,
            memory_factor_milli: policy.memory_factor_milli,
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
                jitter_milli: self.backoff_jitter_milli.unwrap_or(Backoff::FULL_JITTER_MILLI),
                delays: {
                    let initial = Duration::from_millis(self.backoff_initial_ms);
                    let max = Duration::from_millis(self.backoff_max_ms);
                    match self.backoff_kind {
                        None => Delays::Exponential { initial, max, factor_milli: self.backoff_factor_milli },
                        Some(kind) => match value_of(&keys::BACKOFF_KINDS, &kind)? {
                            BackoffKind::Exponential => return None,
                            BackoffKind::Linear => Delays::Linear { initial, max },
                            BackoffKind::Fixed => Delays::Fixed(initial),
                            BackoffKind::List => Delays::List(
                                self.backoff_delays_ms.into_iter().map(Duration::from_millis).collect(),
                            ),
                        },
                    }
                },
            },
            memory_factor_milli: self.memory_factor_milli,
        })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn value_of<T: Clone>(choices: &[(&'static str, T)], word: &str) -> Option<T> {
    choices.iter().find(|(name, _)| *name == word).map(|(_, value)| value.clone())
}
