//! The limits that a definition declares: how many of its jobs run at once, how often one starts, how many may wait,
//! and by which key they are unique.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use protocol::milliseconds;
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use crate::shared_text;
use crate::state::State;

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
    /// The oldest jobs that hold a permit are cancelled, until the permits suffice for the new job as well.
    CancelRunning,
    /// The oldest jobs that hold a permit or are queued are cancelled, until the permits suffice for the new job as well.
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

/// The rule by which jobs are unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UniqueRule {
    /// The source of the key; the overrides of the job if absent.
    pub key: Option<KeySource>,
    /// Answer to a job whose key is taken.
    pub on_duplicate: OnDuplicate,
    /// Ends that free the key.
    pub clear: Clear,
}

/// Answer to a job, or a batch, whose key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// No job is made; the answer is the job that has the key.
    #[default]
    Return,
    /// The job that has the key is cancelled, and the new one runs after it.
    Replace,
    /// The request is refused.
    Reject,
}

impl OnDuplicate {
    /// All answers, with their names in jobs.yaml and the API.
    pub const ALL: [(&'static str, Self); 3] =
        [("return", Self::Return), ("replace", Self::Replace), ("reject", Self::Reject)];

    /// Name in jobs.yaml and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Replace => "replace",
            Self::Reject => "reject",
        }
    }

    /// The answer with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, answer)| answer)
    }
}

/// Ends that free the key of a job. A cancel always does. Its serde form is the list of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub enum Clear {
    /// Every end.
    Always,
    /// Success only.
    Success,
    /// Failure, loss and expiry only: a job that has succeeded is not run again.
    Failed,
}

impl Clear {
    /// A job that ends in this state frees its key.
    #[must_use]
    pub const fn frees(self, state: State) -> bool {
        match state {
            State::Succeeded => matches!(self, Self::Always | Self::Success),
            State::Failed | State::Lost | State::Expired => matches!(self, Self::Always | Self::Failed),
            _ => true,
        }
    }

    /// Names in jobs.yaml and the API.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Always => &["success", "failed"],
            Self::Success => &["success"],
            Self::Failed => &["failed"],
        }
    }
}

impl From<Clear> for Vec<String> {
    fn from(clear: Clear) -> Self {
        clear.names().iter().map(ToString::to_string).collect()
    }
}

impl TryFrom<Vec<String>> for Clear {
    type Error = &'static str;

    fn try_from(names: Vec<String>) -> Result<Self, Self::Error> {
        let known = [Self::Always, Self::Success, Self::Failed].into_iter().find(|it| it.names() == names);
        known.ok_or("these ends are unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_frees_the_key_or_keeps_it() {
        let frees = |clear: Clear| {
            let ends = State::ENDED.into_iter();
            ends.filter(|state| clear.frees(*state)).map(State::name).collect::<Vec<_>>()
        };
        assert_eq!(frees(Clear::Always), ["succeeded", "failed", "cancelled", "expired", "lost"]);
        assert_eq!(frees(Clear::Success), ["succeeded", "cancelled"]);
        assert_eq!(frees(Clear::Failed), ["failed", "cancelled", "expired", "lost"]);
    }
}
