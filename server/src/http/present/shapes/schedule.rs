//! Schedules, and what became of their slots.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// A schedule of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// The name of its definition.
    pub name: String,
    /// Its id among the schedules of its definition.
    pub id: String,
    /// The rule: `cron …`, `every …` or `at …`.
    pub rule: String,
    /// The rule in words.
    pub description: String,
    /// The zone in which the rule is read.
    pub timezone: String,
    /// `active`, `paused`, `disabled` or `over`.
    #[schema(value_type = String)]
    pub state: Text,
    /// Since when it, its definition, the group of that, or everything is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Time>,
    /// The time at which the last of these pauses ends by itself; absent: none is in force, or an operator ends one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<Time>,
    /// It fires nothing until this time in the future: its slots up to then were decided before the server's clock was set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_until: Option<Time>,
    /// No slot is earlier than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Time>,
    /// No slot is later than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Time>,
    /// A slot fires up to this much later, always by the same time for the same slot; absent: at the slot itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// The words that its jobs get after the command of the definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The names of the variables that its jobs get beside those of the definition. Values are never shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The next slots.
    pub next: Vec<Time>,
    /// When the slots of `next` fire, in their order; absent without jitter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_due: Vec<Time>,
    /// The last slot that became a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fire: Option<LastFire>,
}

/// A slot that became a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastFire {
    /// The slot.
    pub slot: Time,
    /// When the job was made.
    pub at: Time,
    /// The job.
    pub job: u64,
    /// From when it was due, jitter included, until the job was made.
    pub lateness_ms: u64,
}

/// A backfill: the slots of a range, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Backfill {
    /// The name of the definition.
    pub name: String,
    /// The id of the schedule.
    pub schedule: String,
    /// The zone of the schedule.
    #[serde(default)]
    pub timezone: String,
    /// Nothing was made.
    pub dry_run: bool,
    /// How many jobs were made, or would be.
    pub count: u64,
    /// The first of the jobs, which names their batch; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// All slots of the range, in order.
    pub slots: Vec<BackfillSlot>,
}

/// A slot of a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackfillSlot {
    /// The slot.
    pub slot: Time,
    /// `backfilled`, or `open` in a dry run; `fired` if it became its job before; `covered` if a slot of an earlier rule, to
    /// which it is the nearest, became this job; `forgotten` if nobody knows whether it did;
    /// `undecided` if the schedule itself will decide it.
    #[schema(value_type = String)]
    pub result: Text,
    /// Its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
}

/// A row of the fire ledger: consecutive slots of a schedule that became the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fire {
    /// The id of the schedule.
    pub schedule: String,
    /// The first slot.
    pub from: Time,
    /// The last slot; the same if it is one.
    pub to: Time,
    /// How many slots.
    pub count: u64,
    /// There may be more than `count`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// `fired`, `caught_up`, `backfilled`, `skipped` or `missed`.
    #[schema(value_type = String)]
    pub verdict: Text,
    /// Why a slot did not fire: `overlap`, `paused`, `limit`, `disabled`, `catch_up`, `catch_up_window`, `rule_changed`, `removed`,
    /// `restored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Text>,
    /// The job that it became, or that was in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The state of the job that it became. Absent if it became none, or retention has deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Text>,
    /// The outcome of the latest attempt of that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<Text>,
    /// The exit code of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The newest retry of that job: a retry of a retry counts. Absent if none is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<SlotRetry>,
    /// True if the last of these jobs failed, expired or was lost, and nobody has retried or acknowledged it. Jobs that ended under a version
    /// without unresolved failures are never unresolved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unresolved: bool,
    /// The zone of the schedule, as jobs.yaml has it now; absent if it has left jobs.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// When the last of them was decided.
    pub decided_at: Time,
    /// How long after the last of them was due that was: its jitter is no lateness while the schedule is in jobs.yaml.
    pub lateness_ms: u64,
}

/// The last retry of the job of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotRetry {
    /// Its number.
    pub id: u64,
    /// Its state.
    #[schema(value_type = String)]
    pub state: Text,
    /// The outcome of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<Text>,
    /// The exit code of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}
