//! Definitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Job, Reason, Word};

/// A definition, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// The hash of its content.
    pub revision: String,
    /// Whether it may be submitted.
    pub enabled: bool,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whom to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// For people and filters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `docker`, `process` or `fake`.
    pub runtime: Word,
    /// The image reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Instead of the image's entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Words after the image.
    #[serde(default)]
    pub command: Vec<String>,
    /// The names of its variables. Values are never shown.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Where the program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// As whom it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its mounts, as `source:target[:ro]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The network that it joins; absent: the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Memory file systems: a path, with options after a colon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<String>,
    /// Whether its root file system is read-only.
    pub read_only: bool,
    /// Capabilities added to Docker's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// Capabilities taken from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// Whether a small init is process 1.
    pub init: bool,
    /// `os/arch[/variant]`; absent: the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Labels of the container beside Longshore's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When the image is pulled: `always`, `missing` or `never`.
    pub pull_policy: Word,
    /// How long one pull may take.
    pub pull_timeout_ms: u64,
    /// Thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u32>,
    /// Memory without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads; absent: the worker's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// How long one attempt may run; absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The signal that asks it to stop; absent: the image's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// How long it may take to stop before it is killed.
    pub stop_grace_ms: u64,
    /// What happens after a failure that is the job's own.
    pub retry: Retry,
    /// After so many lost attempts within a day a job is quarantined.
    pub lost_limit: u32,
    /// How long a silent worker keeps a job.
    pub lost_after_ms: u64,
    /// What becomes of a job whose worker is lost: `retry`, `fail` or `wait`.
    pub on_lost: Word,
    /// So long after the last heartbeat of its worker that the server answered, its container is gone; absent: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_fence_ms: Option<u64>,
    /// How often a worker that has a job of it says at least that it lives; absent: as the server asks of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_interval_ms: Option<u64>,
    /// How long the next attempt waits after a failure that is not the job's own; absent: up to a second, doubling to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected_retry_delay_ms: Option<u64>,
    /// How much output of one attempt is kept.
    pub log_max_bytes: u64,
    /// How many of its jobs wait, by the reason why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The last of its jobs that ended; in the answer about one definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ended: Option<Job>,
}

/// What happens after a failure that is the job's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many further attempts.
    pub max: u32,
    /// After which outcomes.
    pub when: Vec<Word>,
    /// If not empty, only after these exit codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Where the next attempt may run: `any`, `same` or `other`.
    pub on: Word,
    /// The ceiling of the first pause.
    pub backoff_initial_ms: u64,
    /// The highest ceiling.
    pub backoff_max_ms: u64,
    /// How much the ceiling grows with each failure, in thousandths.
    pub backoff_factor_milli: u32,
    /// By how much each attempt that was killed for its memory limit raises that limit, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_factor_milli: Option<u32>,
}

/// Jobs of a definition that wait for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Why.
    #[serde(flatten)]
    pub reason: Reason,
    /// How many.
    pub count: u64,
}

/// What a new reading of jobs.yaml has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// How many definitions there are now.
    pub definitions: usize,
    /// The names of those that are new.
    pub added: Vec<String>,
    /// The names of those that run otherwise than before.
    pub changed: Vec<String>,
    /// The names of those that are gone.
    pub removed: Vec<String>,
    /// What is suspicious in the file.
    pub warnings: Vec<String>,
}
