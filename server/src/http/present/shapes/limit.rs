//! JSON of limits: the rules of a definition, and the state of a limit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// A limit on jobs at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Concurrency {
    /// Jobs at once, for each value of the key.
    pub limit: u32,
    /// `labels.NAME`, or a constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The definitions of a group share the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `queue`, `reject`, `cancel_running` or `cancel_oldest`.
    #[schema(value_type = String)]
    pub on_full: Text,
}

/// A limit on starts within a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateLimit {
    /// Starts within `per_ms`, for each value of the key.
    pub limit: u32,
    /// The time that the limit counts for.
    pub per_ms: u64,
    /// Starts that may follow each other at once.
    pub burst: u32,
    /// `labels.NAME`, or a constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A limit that some job needs now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// `definition`, `group`, `batch`, `rate` or `server`.
    #[schema(value_type = String)]
    pub kind: Text,
    /// The definition, the group, or the number of the batch.
    pub name: String,
    /// The value of its key; absent: it has no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Jobs at once; absent for a rate, and for a limit that jobs.yaml does not have any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The time between two starts of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// Starts of a rate that may follow each other at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Jobs that hold a permit.
    pub in_use: u64,
    /// Jobs that need the limit, have not ended and hold no permit; scheduled ones included.
    pub waiting: u64,
    /// The oldest jobs that hold a permit, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<u64>,
    /// When a rate allows the next start; absent: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_start: Option<Time>,
}
