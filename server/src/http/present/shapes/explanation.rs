//! JSON of `explain`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Limit, Pause, Reason, Text, Time, WorkerRef};

/// The reason for a job's state, and a verdict for each worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job's number.
    #[serde(default)]
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// Its state.
    #[schema(value_type = String)]
    pub state: Text,
    /// The wait, the worker that has it, or the end of the job.
    pub reason: Reason,
    /// The limits that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The pauses that keep its definition from handing out jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Jobs of its lane that go before it, while it waits. A lane has the jobs of a definition with the same keys of limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// True if more jobs go before it than `before` says: the server counts up to 10,000.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before_at_least: bool,
    /// Jobs that wait in its lane, itself included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_jobs: Option<u64>,
    /// Jobs that wait in other lanes, whatever they wait for. Those with a higher priority may go before it, and those that have been due for longer
    /// with the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_jobs: Option<u64>,
    /// How long it will wait, if that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Steps that it has gained on top of its priority, while it waits; only with `--priority-ageing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_steps: Option<u64>,
    /// A verdict for every worker that was not forgotten; none once the job has ended.
    pub workers: Vec<WorkerVerdict>,
}

impl Explanation {
    /// The position in its lane, in words, while it waits.
    #[must_use]
    pub fn position_in_words(&self) -> Option<String> {
        let (before, jobs) = self.before.zip(self.lane_jobs)?;
        // More than `before` go before it, so its position is later than the next one.
        let position =
            if self.before_at_least { format!("beyond {}", before + 1) } else { (before + 1).to_string() };
        let others = match self.other_jobs.unwrap_or_default() {
            0 => String::new(),
            1 => "; 1 other job waits, which may go before it".to_owned(),
            others => format!("; {others} other jobs wait, which may go before it"),
        };
        Some(format!(
            "{position} of {jobs}, among the waiting jobs of its definition with the same keys{others}"
        ))
    }
}

/// An estimate of a wait, if no other job comes before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Estimate {
    /// From now until its start, in milliseconds.
    pub wait_ms: u64,
    /// The basis of the estimate as a sentence.
    #[schema(value_type = String)]
    pub text: Text,
}

/// The verdict for one worker at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Verdict)]
pub struct WorkerVerdict {
    /// The judged worker.
    pub worker: WorkerRef,
    /// `has_it`, `able`, `last_resort`, `unable`, or of a job on several workers `has_member`.
    #[schema(value_type = String)]
    pub verdict: Text,
    /// The verdict as a sentence.
    #[schema(value_type = String)]
    pub text: Text,
    /// The obstacles, the hardest to overcome first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Obstacle>,
}

/// Something that keeps a worker from being given a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Obstacle {
    /// Stable code for programs.
    #[schema(value_type = String)]
    pub code: Text,
    /// The obstacle as a sentence.
    #[schema(value_type = String)]
    pub text: Text,
    /// The time at which it ends by itself, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}
