//! Jobs, their attempts and their story; batches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Reason, Time, Timeout, Word, WorkerRef};

/// A job as lists show it, and as the answer to its submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// The definition's revision that it was made with.
    pub revision: String,
    /// `scheduled`, `queued`, `assigned`, `running`, `quarantined`, `succeeded`, `failed`, `cancelled`, `expired` or `lost`.
    pub state: Word,
    /// Why it is being stopped, beside a live state: `cancel`, `timeout`, `superseded`, `pinning` or `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Word>,
    /// Whether it waits to run.
    pub queuing: bool,
    /// Whether its container runs.
    pub running: bool,
    /// Whether it succeeded.
    pub success: bool,
    /// Why it waits, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_reason: Option<Reason>,
    /// Where an assigned job stands on its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Since when the worker that has it has been silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_unreachable_since: Option<Time>,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// When it was accepted.
    pub created_at: Time,
    /// From when it may (next) run.
    pub due_at: Time,
    /// When the container of its latest attempt started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// How long the container of its latest attempt ran; absent while it runs, and if nobody knows, as for a lost one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// How many attempts it has had.
    pub attempt_count: u32,
    /// The worker of its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
    /// How its latest attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Word>,
    /// The exit code of its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// In one line: why it ended so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For a cancelled job: whether its container is known to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// How long an attempt may run, where the job says otherwise than its definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// The first job of the batch that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The ended job that it tries again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<u64>,
    /// For people and filters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// In the answer to a submission: something to know although it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Reason>,
}

/// A job with its whole story.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FullJob {
    /// What lists show.
    #[serde(flatten)]
    pub job: Job,
    /// Words that it appends to its definition's command.
    #[serde(default)]
    pub args: Vec<String>,
    /// The names of the variables that it lays over its definition's environment. Values are never shown.
    #[serde(default)]
    pub environment: Vec<String>,
    /// What became of a cancel that did not end it: `too_late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Word>,
    /// What it left as its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
    /// Every attempt, oldest first.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// What happened, oldest first.
    #[serde(default)]
    pub timeline: Vec<Event>,
    /// Reports that came too late to be believed, oldest first.
    #[serde(default)]
    pub late_reports: Vec<LateReport>,
    /// How many more of those there were: of very many the first and the last are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_reports_left_out: Option<u64>,
    /// Whether the job that it tries again has been removed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_of_removed: bool,
}

/// One try of a job on one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which try it is, from 1.
    pub number: u32,
    /// Its number within the installation.
    pub fence: u64,
    /// Who had it.
    pub worker: WorkerRef,
    /// When it was handed over.
    pub assigned_at: Time,
    /// When its container started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// How long its container ran; absent if nobody knows, as for a lost one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// The runtime's own name for the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Why it is being, or was, stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Word>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Word>,
    /// For a released one: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<Word>,
    /// The program's exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// For people, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How much it wrote, once its final report told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputBytes>,
}

/// How much an attempt wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputBytes {
    /// To its standard output.
    pub stdout_bytes: u64,
    /// To its standard error.
    pub stderr_bytes: u64,
}

/// Something that happened to a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What: `accepted`, `assigned`, `started`, `attempt_ended`, `cancel_requested`, `cancel_confirmed`, `released`, `worker_unreachable`,
    /// `worker_returned`, `late_report`, `container_gone`, `quarantined`, or the name of the state in which the job ended.
    pub event: Word,
    /// Which attempt it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Which worker it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
    /// For people, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// A report that came too late to be believed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateReport {
    /// When it came.
    pub at: Time,
    /// Which try of its job it is about, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The attempt that it is about.
    pub fence: u64,
    /// Who said it.
    pub worker: WorkerRef,
    /// What it said.
    pub said: String,
}

/// Where an attempt stands on its worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// `backlog`, `pulling`, `starting`, `running`, `stopping` or `ended`.
    pub name: Word,
    /// How much of its image has been pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// How often its image could not be pulled by now: the worker tries again. Absent if that has not failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
}

/// Jobs that were made by one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its number: the one of its first job. `GET /api/jobs?batch=` lists the members.
    pub batch: u64,
    /// How many jobs it has.
    pub count: u32,
    /// The first job's number.
    pub first: u64,
    /// The last job's number; all between belong to it.
    pub last: u64,
    /// When it was accepted; absent if the request is a repetition of one that was accepted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// Something to know although it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Reason>,
}
