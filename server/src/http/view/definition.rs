//! Definitions.

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
    /// The network that it joins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u32>,
    /// Memory without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// How long one attempt may run; absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long it may take to stop before it is killed.
    pub stop_grace_ms: u64,
    /// What happens after a failure that is the job's own.
    pub retry: Retry,
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
