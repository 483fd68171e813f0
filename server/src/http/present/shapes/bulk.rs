//! JSON of operations on many jobs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Problem, Text};

/// The answer to a bulk operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    /// True if the jobs were only counted.
    pub dry_run: bool,
    /// The number of selected jobs, up to `next`.
    pub matched: u64,
    /// The number of jobs for which the operation is complete.
    pub done: u64,
    /// The number of jobs whose containers are being stopped by a cancel. Of a cancel of a whole batch: also those that wait and end soon.
    pub stopping: u64,
    /// The number of jobs for which the operation was refused.
    pub refused: u64,
    /// Of a dry run with filters: the number of jobs beside `matched` that the filters select, and that the token may not act on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub out_of_scope: u64,
    /// The first refusals, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// The effect on each job of a request with `ids` that was no dry run, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<BulkEffect>,
    /// The jobs that a retry made, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<u64>,
    /// Of a retry with filters: true if it goes by the slots of the jobs, oldest first. False if the selection is too large for that, or reading
    /// it takes too long: it begins with the newest job then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
    /// Of a retry with filters: the jobs that were retried and the new jobs, in the order of the retries, at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<RetryMade>,
    /// Of a retry with filters: the number of jobs beside `matched` that were retried before, and are left to their retries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retried_before: u64,
    /// The first of them, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<RetriedBefore>,
    /// The `cursor` of the next request, if the time was up before the last job, or an error came after others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A job and the retry of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetryMade {
    /// The number of the job that was retried.
    pub job: u64,
    /// The number of the new job.
    pub made: u64,
}

/// A job that a retry with filters leaves to an earlier retry of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetriedBefore {
    /// The job's number.
    pub job: u64,
    /// The number of its last retry: a retry of a retry counts.
    pub retry: u64,
    /// The state of that retry.
    #[schema(value_type = String)]
    pub state: Text,
}

impl BulkResult {
    /// Counts jobs that are left to their retries, and shows the first ones.
    pub(crate) fn leave_out(&mut self, jobs: Vec<RetriedBefore>) {
        self.retried_before += jobs.len() as u64;
        let shown = LEFT_OUT_SHOWN.saturating_sub(self.left_out.len());
        self.left_out.extend(jobs.into_iter().take(shown));
    }
}

/// Jobs that were retried before and are shown; all are counted.
const LEFT_OUT_SHOWN: usize = 20;

/// One refusal of a bulk operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// The job's number.
    pub job: u64,
    /// Stable code for programs, as in a problem document.
    #[schema(value_type = String)]
    pub code: Text,
    /// The reason as a sentence.
    pub detail: String,
}

/// The effect of a bulk operation on one job. Exactly one of `state`, `made` and `problem` is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkEffect {
    /// The job's number.
    pub job: u64,
    /// Its state after a cancel, a release or an acknowledgement; a job whose containers are being stopped has not ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Text>,
    /// The job that a retry made. With `duplicate`: the job that has the unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<u64>,
    /// True if a retry made no job because an existing one has the unique key, and the definition says `on_duplicate: return`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// The refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}
