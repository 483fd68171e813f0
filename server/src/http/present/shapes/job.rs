//! JSON of jobs, attempts, timelines and batches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Acknowledgement, Dependency, Members, OutputBytes, Reason, Text, Time, Timeout, Usage, WorkerRef,
};

/// A job as lists show it, and as the answer to its submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// The definition's revision that it was made with.
    #[serde(default)]
    pub revision: String,
    /// `scheduled`, `queued`, `assigned`, `running`, `quarantined`, `succeeded`, `failed`, `cancelled`, `expired` or `lost`.
    #[schema(value_type = String)]
    pub state: Text,
    /// The cause of a stop under way, beside a live state: `cancel`, `timeout`, `superseded`, `pinning` or `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stopping: Option<Text>,
    /// True while it waits to run.
    #[serde(default)]
    pub queuing: bool,
    /// True while its container runs.
    #[serde(default)]
    pub running: bool,
    /// True if it succeeded.
    #[serde(default)]
    pub success: bool,
    /// The reason why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_reason: Option<Reason>,
    /// The phase of an assigned job on its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When an assigned job was given to its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_at: Option<Time>,
    /// The time since which its worker has been unreachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_unreachable_since: Option<Time>,
    /// Higher goes first; −100 to 100.
    #[serde(default)]
    pub priority: i8,
    /// The schedule that made it; of a retry, the one that its container is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The slot of that schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<Time>,
    /// The name of the token whose holder made it; `proxy:NAME` for a user whom a proxy has signed in. Absent if no request made it, on a server
    /// that needs no token, and for jobs that an earlier version made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The time of acceptance.
    pub created_at: Time,
    /// The earliest time of the (next) attempt.
    #[serde(default)]
    pub due_at: Time,
    /// By when it starts or ends as expired; absent if it does not wait, or may wait without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When the container of its latest attempt started; of a job on several workers (`run_on`), the first one of its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The time of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The running time of its latest container; of a job on several workers, from the first start to its end. Absent while it runs, and if it is
    /// unknown, as for a lost attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// The number of its attempts.
    #[serde(default)]
    pub attempt_count: u32,
    /// The worker of its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
    /// The outcome of its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<Text>,
    /// The exit code of its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The reason of its end, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// True if it failed, expired or was lost, no retry of it was made, and nobody has acknowledged that. Members of a job on several workers
    /// and jobs that ended under a version before this one are never unresolved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unresolved: bool,
    /// The acknowledgement of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
    /// For a cancelled job: true if its container is known to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The job's own timeout of an attempt, if it differs from the definition's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// The first job of the batch that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The job that it runs in the place of, on one of several workers (`run_on`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_of: Option<u64>,
    /// The workers that it asks for, of those that its definition allows: names and ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Conditions on the labels of its worker that it has itself, beside those of its definition, as jobs.yaml writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The only worker that may run this member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_worker: Option<u64>,
    /// Its members, if it runs on several workers (`run_on`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Members>,
    /// The ended job that it tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<u64>,
    /// Labels for people and filters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// True in the answer to a submission that made no job, because this one has the unique key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// True in the answer to a repeated request: an earlier one with this idempotency key made the job, and nothing was made now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// A warning beside an accepted submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Reason>,
}

impl Job {
    /// The workers that it asks for, in words; empty if any will do.
    #[must_use]
    pub fn asks_for_in_words(&self) -> String {
        let workers = (!self.workers.is_empty()).then(|| format!("worker {}", self.workers.join(" or ")));
        workers.into_iter().chain(self.requires.iter().cloned()).collect::<Vec<_>>().join(", ")
    }
}

/// A job of a list, in a list of one batch with its position; with `results=1` also what it was given and what it left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedJob {
    /// The fields that each list shows.
    #[serde(flatten)]
    pub job: Job,
    /// With `batch` or `results=1`, for a member of a batch: its position from 0, as `LONGSHORE_INDEX` tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// With `results=1`: parameters that its submission gave, or results of earlier jobs; secret ones as `***`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, serde_json::Value>,
    /// With `results=1`: the result that it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// With `results=1`: a remark of its worker, although it has succeeded: its result was left out, or a process in it was killed for lack of
    /// memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A job with attempts and timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FullJob {
    /// The fields that lists show.
    #[serde(flatten)]
    pub job: Job,
    /// For a member of a batch, and a retry of one: its position from 0, as `LONGSHORE_INDEX` tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Of a job that follows one of a slot, by a hook or `after`: that slot, as `LONGSHORE_PARENT_SCHEDULED_AT` tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_scheduled_at: Option<Time>,
    /// Arguments appended to the definition's command.
    #[serde(default)]
    pub args: Vec<String>,
    /// Parameters that its submission gave, or results of earlier jobs; secret ones as `***`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, serde_json::Value>,
    /// Its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
    /// Names of variables laid over the definition's environment. Values are never shown.
    #[serde(default)]
    pub environment: Vec<String>,
    /// The trace that it belongs to, as its submission named it: a `traceparent` of W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The `X-Request-Id` that its submission gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The fate of a cancel that did not end it: `too_late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cancel: Option<Text>,
    /// The result that it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Every attempt, oldest first.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// The timeline, oldest first.
    #[serde(default)]
    pub timeline: Vec<Event>,
    /// Late reports, which were recorded and not believed, oldest first.
    #[serde(default)]
    pub late_reports: Vec<LateReport>,
    /// The number of late reports that are not listed: of many, the first and the last are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_reports_left_out: Option<u64>,
    /// True if the job that it retries has been removed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_of_removed: bool,
    /// The latest job that tries this one again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<u64>,
    /// The state of that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retried_as_state: Option<Text>,
    /// The job whose hook made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Its hooks that were decided, in the order of their events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The jobs and batches that it comes after, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// The jobs that come after it, at most 100; `GET /api/jobs/{id}/pipeline` has more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependents: Vec<Dependency>,
}

/// The job whose hook made another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parent {
    /// Its number.
    pub job: u64,
    /// The event: `on_start`, `on_success`, `on_failure` or `on_end`.
    #[schema(value_type = String)]
    pub hook: Text,
}

/// The result of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hook {
    /// The event: `on_start`, `on_success`, `on_failure` or `on_end`.
    #[schema(value_type = String)]
    pub hook: Text,
    /// The name of the definition that it is for.
    pub name: String,
    /// The time of the decision.
    pub at: Time,
    /// The job that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The state of that job; absent if it was removed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Text>,
    /// The reason why no job was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Reason>,
}

/// One try of a job on one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// The number of the try, from 1. Absent in events about an attempt of which only the fence is known.
    #[serde(default, skip_serializing_if = "nothing")]
    pub number: u32,
    /// Its fence: the number of the attempt within the installation.
    #[serde(default)]
    pub fence: u64,
    /// The worker that had it.
    pub worker: WorkerRef,
    /// The time of its assignment. Absent where `number` is.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub assigned_at: Time,
    /// The start of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The end of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// The running time of its container; absent if it is unknown, as for a lost attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// The runtime's own name for the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// The cause for which it is being, or was, stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stopping: Option<Text>,
    /// The outcome of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<Text>,
    /// The cause of a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub released: Option<Text>,
    /// The program's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The reason of its end, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The length of its output, from the final report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputBytes>,
    /// Resources that it has used; absent if nothing was measured. While it runs, this is the latest sample of its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// An entry of a job's timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The time of the event.
    pub at: Time,
    /// The kind: `accepted`, `assigned`, `started`, `attempt_ended`, `cancel_requested`, `cancel_confirmed`, `released`, `updated`,
    /// `worker_unreachable`, `worker_returned`, `late_report`, `hook_made`, `hook_left_out`, `result_left_out`, `workers_left_out`, `container_gone`, `quarantined`, or the name of the final state.
    #[schema(value_type = String)]
    pub event: Text,
    /// The number of the attempt concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The worker concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
    /// Details in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// A report that came too late to be believed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LateReport {
    /// The time of its arrival.
    pub at: Time,
    /// The number of the try, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The fence of the attempt.
    pub fence: u64,
    /// The worker that sent it.
    pub worker: WorkerRef,
    /// The content of the report.
    pub said: String,
}

/// The phase of an attempt on its worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Phase {
    /// `backlog`, `pulling`, `starting`, `running`, `stopping` or `ended`.
    #[schema(value_type = String)]
    pub name: Text,
    /// The percentage of its image that has been pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// The number of failed pulls of its image so far; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn nothing(count: &u32) -> bool {
    *count == 0
}

fn is_unknown(time: &Time) -> bool {
    *time == Time::default()
}
