//! The limits that a definition declares: how many of its jobs run at once, how often one starts, how many may wait.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use protocol::milliseconds;
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use crate::shared_text;
use crate::unique::UniqueRule;

/// The limits of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitRules {
    /// Jobs at once; unlimited if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub concurrency: Option<Concurrency>,
    /// Starts within a time; unlimited if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub rate: Option<RateLimit>,
    /// Jobs of the definition that may wait at once; unlimited if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub queued_max: Option<u32>,
    /// Jobs are unique by a key; none are if absent.
    #[serde(skip_serializing_if = "is_default")]
    pub unique: Option<UniqueRule>,
}

impl LimitRules {
    /// Jobs need a permit or a token before they are assigned.
    #[must_use]
    pub const fn gate_starts(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }
}

/// Jobs that hold a worker at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// Jobs at once for each value of the key; at least 1.
    pub limit: u32,
    /// Counts the jobs of each value by themselves.
    pub key: Option<KeySource>,
    /// Counts the jobs of all definitions of this group together.
    pub group: Option<String>,
    /// Answer to a submission while no permit is left.
    pub on_full: OnFull,
}

/// Answer to a submission while no permit is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// The job waits.
    #[default]
    Queue,
    /// The submission is refused.
    Reject,
    /// The oldest jobs that hold a permit are cancelled, one for each new job.
    CancelRunning,
    /// The oldest jobs of the limit are cancelled, waiting or not, one for each new job.
    CancelOldest,
}

/// Starts within a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Starts within `per`; at least 1.
    pub limit: u32,
    /// The time that `limit` counts for.
    #[serde(rename = "per_ms", with = "milliseconds")]
    pub per: Duration,
    /// Starts that may follow each other at once after a quiet time; at least 1.
    pub burst: u32,
    /// Counts the jobs of each value by themselves.
    pub key: Option<KeySource>,
}

/// The source of a key's value. The value is computed at the submission and stored with the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// The same value for all jobs.
    Constant(#[serde(with = "shared_text")] Arc<str>),
    /// The job's label of this name; empty if the job has no such label.
    Label(String),
    /// The value of this parameter, as the variable `PARAM_*` has it; empty if the job has none.
    Param(String),
}

impl OnFull {
    /// All answers, with their names in jobs.yaml and the API.
    pub const ALL: [(&'static str, Self); 4] = [
        ("queue", Self::Queue),
        ("reject", Self::Reject),
        ("cancel_running", Self::CancelRunning),
        ("cancel_oldest", Self::CancelOldest),
    ];

    /// Waiting jobs may be cancelled, too.
    #[must_use]
    pub const fn cancels_oldest(self) -> bool {
        matches!(self, Self::CancelOldest)
    }
}

/// As jobs.yaml spells it.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => f.write_str(value),
            Self::Label(name) => write!(f, "labels.{name}"),
            Self::Param(name) => write!(f, "params.{name}"),
        }
    }
}
