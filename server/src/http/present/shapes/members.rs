//! JSON of the members of a job that runs on several workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Text;

/// The members of a job that runs on several workers. `GET /api/jobs?member_of={id}` lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// The workers of its members: `all`, a number of them, or the ids that a retry names.
    pub run_on: Workers,
    /// True once all members are made. Until then their number grows.
    pub complete: bool,
    /// Members so far.
    pub total: u32,
    /// Members that have not ended.
    pub live: u32,
    /// Members that succeeded.
    pub succeeded: u32,
    /// Members that failed.
    pub failed: u32,
    /// Members that were cancelled.
    pub cancelled: u32,
    /// Members that did not start in time.
    pub expired: u32,
    /// Members whose worker was lost.
    pub lost: u32,
}

/// The workers of the members of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Workers {
    /// The number of workers.
    Count(u32),
    /// `all`.
    #[schema(value_type = String)]
    All(Text),
    /// Workers with these ids.
    Ids(Vec<u64>),
}

impl Default for Workers {
    fn default() -> Self {
        Self::All("all".into())
    }
}
