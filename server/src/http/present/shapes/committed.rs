//! JSON of events: committed changes as `GET /api/events` sends them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Attempt, Expectation, Fire, Hook, Job, Pause, Text, Time, Worker, WorkerRef};

/// A committed change. Exactly one of the objects says what changed; `attempt` may stand beside `job`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CommittedEvent {
    /// Its place in the order of all events: `epoch.group.index`.
    pub id: String,
    /// The time of the change.
    pub at: Time,
    /// The kind of the change, such as `job.ended`.
    #[schema(value_type = String)]
    pub kind: Text,
    /// The job, as lists show it, but without `pending_reason`, `phase`, `timeout`, `unresolved` and `acknowledged`. Labels, `retry_of`,
    /// `submitted_by`, `schedule` and `scheduled_at` are in `job.accepted` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Job>>,
    /// The attempt concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Box<Attempt>>,
    /// Instead of `job`: the number of the job of an attempt that is not current, or of a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<u64>,
    /// A batch too large for an event per job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<EventBatch>,
    /// A hook, as its job's `hooks` shows it; `job_id` is that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// Slots of a schedule, as in the list of fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fire: Option<Fire>,
    /// The jobs and schedules that were paused or resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The paused or resumed schedules, if no jobs were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<EventSchedules>,
    /// A definition and its new revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<EventDefinition>,
    /// An expectation and whether it is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// The worker, as lists show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Box<Worker>>,
    /// The cordon of `worker` was to end at this time, which has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon_ended: Option<Time>,
    /// A worker that was forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<WorkerRef>,
    /// The name of the definition of `fire` or `expectation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The requester of the change, unless the object has it: the requester of a pause is in `pause`, and that of a resume is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The content of a late report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// A large batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBatch {
    /// Its number, which is that of its first job.
    pub batch: u64,
    /// How many jobs it has.
    pub count: u64,
    /// The definition, if all jobs have the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Schedules that were paused or resumed together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventSchedules {
    /// Their definition; absent: all definitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The one schedule; absent: all of the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventDefinition {
    /// Its name.
    pub name: String,
    /// Its revision.
    pub revision: String,
}
