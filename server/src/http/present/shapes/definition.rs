//! JSON of definitions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Concurrency, Job, Limit, NotifyTarget, Param, Pause, RateLimit, Reason, Schedule, Text, Time, Ulimit,
    Workers,
};

/// A resolved definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// The hash of its content.
    pub revision: String,
    /// The name of its file, if the server reads a directory of jobs files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// True if it accepts submissions.
    pub enabled: bool,
    /// The pauses that keep its jobs from a start; absent: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Free text: the person or team to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Words by which lists can be filtered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The targets of its notifications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<NotifyTarget>,
    /// The limits for its ended jobs; absent: those of the server alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionRule>,
    /// `docker`, `process` or `fake`.
    #[schema(value_type = String)]
    pub runtime: Text,
    /// The image reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Replaces the image's entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Words after the image.
    #[serde(default)]
    pub command: Vec<String>,
    /// The names of its variables. Values are never shown.
    #[serde(default)]
    pub environment: Vec<String>,
    /// The names of its secrets, never their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The secret that the server does not have, and the next step: its jobs wait. Absent: it has them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_secret: Option<String>,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    /// The fields that a submission may carry; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub allow: Option<Vec<Text>>,
    /// The working directory of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The user of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its mounts, as `source:target[:ro]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The network that it joins; absent: the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The name of the container within itself; absent: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Names with addresses of their own, as `name:address`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Addresses of name servers; absent: the engine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Domains in which short names are looked up; absent: the engine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// Limits of each process, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, Ulimit>,
    /// Further groups of the program, by name or number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
    /// Memory file systems: a path, with options after a colon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<String>,
    /// The size of `/dev/shm`; absent: Docker's own, 64 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_bytes: Option<u64>,
    /// True for a read-only root file system.
    #[serde(default)]
    pub read_only: bool,
    /// Capabilities added to Docker's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// Capabilities taken from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// True if a small init is process 1.
    #[serde(default)]
    pub init: bool,
    /// `os/arch[/variant]`; absent: the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Labels of the container beside Longshore's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When the image is pulled: `always`, `missing` or `never`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub pull_policy: Text,
    /// How long one pull may take.
    #[serde(default)]
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
    #[serde(default)]
    pub priority: i8,
    /// How long one attempt may run; absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The signal that asks it to stop; absent: the image's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// How long it may take to stop before it is killed.
    #[serde(default)]
    pub stop_grace_ms: u64,
    /// The retry policy after job failures.
    #[serde(default)]
    pub retry: Retry,
    /// Exit codes beside 0 with which an attempt that ends by itself is a success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub success_exit_codes: Vec<i32>,
    /// A job is quarantined after this many lost attempts within a day.
    #[serde(default)]
    pub lost_limit: u32,
    /// How long a silent worker keeps a job.
    #[serde(default)]
    pub lost_after_ms: u64,
    /// The treatment of a job whose worker is lost: `retry`, `fail` or `wait`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub on_lost: Text,
    /// With `on_lost: wait`: how long a job waits for a silent worker before it ends as lost; null: without limit.
    #[serde(default)]
    #[schema(required)]
    pub on_lost_timeout_ms: Option<u64>,
    /// How long a job may wait for a start before it ends as expired; null: without limit.
    #[serde(default)]
    #[schema(required)]
    pub queue_timeout_ms: Option<u64>,
    /// How long a job may stay in quarantine before it ends as expired; null: without limit.
    #[serde(default)]
    #[schema(required)]
    pub quarantine_timeout_ms: Option<u64>,
    /// Time from the last answered heartbeat until the container is gone; absent: the container goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_fence_ms: Option<u64>,
    /// The longest interval between heartbeats of a worker that runs such a job; absent: the server's interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_interval_ms: Option<u64>,
    /// Delay of the next attempt after an infrastructure failure; absent: up to a second, doubling up to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexpected_retry_delay_ms: Option<u64>,
    /// Its expectations, and whether they are met; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expectation>,
    /// Its hooks: names of definitions by event; events without one are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    pub hooks: BTreeMap<Text, Vec<String>>,
    /// How much output of one attempt is kept.
    #[serde(default)]
    pub log_max_bytes: u64,
    /// Regular expressions whose matches are masked in the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_mask: Vec<String>,
    /// The size of its input in JSON, which a job without its own input gets. The input itself is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<usize>,
    /// How many jobs may run at once; absent: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// How often a job may start; absent: at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// How many jobs may wait; absent: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<u32>,
    /// The rule for duplicates; absent: none are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// Conditions on the labels of workers, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Conditions by which a worker is chosen before others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefers: Vec<Preference>,
    /// The only workers that may run its jobs, by id or name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// The choice between able workers: `spread`, `pack` or `random`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub strategy: Text,
    /// How many workers run each of its jobs, if not one: `all`, or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_on: Option<Workers>,
    /// How many of its jobs wait, by the reason why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The state of the limits that its jobs need now, its group's included; at most 50 of each kind, by key. Only where one definition is
    /// asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The rule for a slot of a schedule while an earlier job has not ended.
    #[serde(default)]
    #[schema(value_type = String)]
    pub overlap: Text,
    /// The slots that make jobs although they passed while no server ran: `none`, `latest` or `all`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub catch_up: Text,
    /// How long ago a slot may be and still be caught up.
    #[serde(default)]
    pub catch_up_window_ms: u64,
    /// How many slots are caught up at most, the newest ones.
    #[serde(default)]
    pub catch_up_limit: u32,
    /// Its schedules with their next slots; only where one definition is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// The next slot of its schedules; absent if none of them is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire_at: Option<Time>,
    /// The last of its jobs that ended; in the answer about one definition, and in a list with `last_ended=1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ended: Option<Job>,
}

/// The expectations of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Expectation {
    /// The longest time between two successes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_within_ms: Option<u64>,
    /// The longest run of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
    /// `met`, `stale`, `slow`, or `stale, slow`.
    #[schema(value_type = String)]
    pub condition: Text,
    /// Since when there was no success in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Time>,
    /// Since when a run took longer than expected, and none was quick enough after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_since: Option<Time>,
    /// The job of the last run that was noticed to be too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_job: Option<u64>,
}

/// How long ended jobs of a definition and their output are kept, within the limits of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetentionRule {
    /// The number of ended jobs that are kept, the newest ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
    /// How long an ended job is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
    /// How long a job that failed, expired or was lost is kept, in place of `keep` and `max_age_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_max_age_ms: Option<u64>,
    /// How long the output of an ended job is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_max_age_ms: Option<u64>,
}

/// The retry policy after job failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retry {
    /// The number of further attempts.
    pub max: u32,
    /// The outcomes that are retried.
    #[schema(value_type = Vec<String>)]
    pub when: Vec<Text>,
    /// If not empty, only these exit codes are retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// The worker of the next attempt: `any`, `same` or `other`.
    #[schema(value_type = String)]
    pub on: Text,
    /// How the maximum delay before a retry grows: `exponential`, `linear`, `fixed` or `list`.
    #[schema(value_type = String)]
    pub backoff_kind: Text,
    /// The maximum delay before the first retry.
    pub backoff_initial_ms: u64,
    /// The upper bound of all delays.
    pub backoff_max_ms: u64,
    /// How much the maximum delay grows with each failure, in thousandths.
    pub backoff_factor_milli: u32,
    /// For `list`: the maximum delay before each retry; the last one repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backoff_delays_ms: Vec<u64>,
    /// The random part of a delay, in thousandths of the maximum delay.
    pub backoff_jitter_milli: u32,
    /// By how much each attempt that was killed for its memory limit raises that limit, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_factor_milli: Option<u32>,
}

/// At most one job for each key has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unique {
    /// `params.NAME`, `labels.NAME`, or a constant; absent: what the request overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `return`, `replace` or `reject`.
    #[schema(value_type = String)]
    pub on_duplicate: Text,
    /// Ends that free the key: `success`, `failed`.
    #[schema(value_type = Vec<String>)]
    pub clear: Vec<Text>,
}

/// A condition on labels with its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Preference {
    /// The condition, as text.
    pub condition: String,
    /// Workers that meet the condition score this.
    pub weight: i32,
}

/// Jobs of a definition that wait for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// The reason why they wait.
    #[serde(flatten)]
    pub reason: Reason,
    /// The number of jobs.
    pub count: u64,
}

/// The changes of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// The number of definitions after the reload.
    pub definitions: usize,
    /// Revision of the whole set after the reload.
    #[serde(default)]
    pub revision: String,
    /// Names of new definitions.
    pub added: Vec<String>,
    /// Names of changed definitions.
    pub changed: Vec<String>,
    /// Names of removed definitions.
    pub removed: Vec<String>,
    /// True if the policy has other rules than before; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub policy_changed: bool,
    /// Warnings of the file.
    pub warnings: Vec<String>,
}
