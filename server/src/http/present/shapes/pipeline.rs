//! Jobs that come after one another.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Text;

/// A job or a batch before a job, or a job after it. It has either `job` or `batch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dependency {
    /// The number of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The number of the batch. Its end is that of its last member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The name of the job's definition, or of the batch if it was given one; absent if it has been removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The outcome that the later of both jobs requires: `succeeded`, `failed`, `not_succeeded` or `ended`.
    #[schema(value_type = String)]
    pub outcome: Text,
    /// Its state, for a batch one of those of batches; the last known one if it has been removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Text>,
}

/// Jobs that come after one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pipeline {
    /// The jobs, by number.
    pub jobs: Vec<PipelineJob>,
    /// True if there are more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A job of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PipelineJob {
    /// Its number.
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// Its state.
    #[schema(value_type = String)]
    pub state: Text,
    /// The ended job that it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<u64>,
    /// The latest job that tries this one again, if it has ended without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<u64>,
    /// The state of that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retried_as_state: Option<Text>,
    /// The jobs and batches that it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
}
