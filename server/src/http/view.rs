//! The shape of every JSON that the server shows. What is in here is a promise: `docs/http-api.md` describes it.
//!
//! Only shapes live here; the resource files fill them in. Absent values are left out rather than shown as `null`, instants are
//! RFC 3339 in UTC with milliseconds, durations are whole milliseconds in keys that end with `_ms`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use protocol::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fixed word of the API: the name of a state, an outcome, a cause.
pub type Word = Cow<'static, str>;

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
    /// How long its container ran.
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
    /// What: `accepted`, `assigned`, `started`, `stopping`, `attempt_ended`, `waiting`, `cancel_requested`, `worker_unreachable`,
    /// `worker_returned`, `late_report`, or the name of the state in which the job ended.
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
    /// The attempt that it is about.
    pub fence: u64,
    /// The number of the worker that said it.
    pub worker: u64,
    /// What it said.
    pub said: String,
}

/// A worker as others mention it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRef {
    /// Its number.
    pub id: u64,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A stable code, and the same in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// For programs.
    pub code: Word,
    /// For people.
    pub text: Word,
}

/// Where an attempt stands on its worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// `backlog`, `pulling`, `starting`, `running`, `stopping` or `ended`.
    pub name: Word,
    /// How much of its image has been pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
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

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub id: u64,
    /// What people call it.
    pub name: String,
    /// Whether it has something to do (`busy` is not zero).
    pub working: bool,
    /// Whether it is connected.
    pub connected: bool,
    /// `joining`, `ready`, `draining`, `disconnected`, `unreachable`, or `gone` for one that is neither connected nor has live attempts.
    pub state: Word,
    /// Whether it takes nothing new, by an operator's word.
    pub cordoned: bool,
    /// How many containers may run at once.
    pub slots: u32,
    /// Attempts that run or are about to.
    pub busy: u32,
    /// How many attempts may wait in front of the slots.
    pub backlog: u32,
    /// Attempts in its local queue.
    pub queued: u32,
    /// Since when it has been connected, or when it was last heard of.
    pub since: Time,
    /// What jobs may require of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it can run, and why not.
    #[serde(default)]
    pub runtimes: Vec<Runtime>,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where it connects from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// When it first joined; in the answer about one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Time>,
}

/// One of a worker's runtimes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// `docker`, `process` or `fake`.
    pub name: Word,
    /// Whether it answers.
    pub available: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A definition, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// The hash of its content.
    pub revision: String,
    /// Whether it may be submitted.
    pub enabled: bool,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whom to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// For people and filters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `docker`, `process` or `fake`.
    pub runtime: Word,
    /// The image reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Instead of the image's entrypoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Words after the image.
    #[serde(default)]
    pub command: Vec<String>,
    /// The names of its variables. Values are never shown.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Where the program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// As whom it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its mounts, as `source:target[:ro]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// The network that it joins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Thousandths of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_milli: Option<u32>,
    /// Memory without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Higher goes first; −100 to 100.
    pub priority: i8,
    /// How long one attempt may run; absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long it may take to stop before it is killed.
    pub stop_grace_ms: u64,
    /// What happens after a failure that is the job's own.
    pub retry: Retry,
    /// How many of its jobs wait, by the reason why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The last of its jobs that ended; in the answer about one definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ended: Option<Job>,
}

/// What happens after a failure that is the job's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many further attempts.
    pub max: u32,
    /// After which outcomes.
    pub when: Vec<Word>,
    /// If not empty, only after these exit codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Where the next attempt may run: `any`, `same` or `other`.
    pub on: Word,
    /// The ceiling of the first pause.
    pub backoff_initial_ms: u64,
    /// The highest ceiling.
    pub backoff_max_ms: u64,
}

/// Jobs of a definition that wait for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Why.
    #[serde(flatten)]
    pub reason: Reason,
    /// How many.
    pub count: u64,
}

/// What the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Always `longshore`.
    pub name: Word,
    /// The version of the program.
    pub version: Word,
    /// The oldest worker protocol that it speaks.
    pub protocol_lowest: u16,
    /// The newest one.
    pub protocol_highest: u16,
}

/// An error, by RFC 9457.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The address of the page that explains the code, on this server.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: Word,
    /// The HTTP status.
    pub status: u16,
    /// For programs: stable.
    pub code: Word,
    /// For people: what is wrong with this very request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Which part of the request: `timeout`, `environment.HOME`, `jobs[3].priority`, `?limit`, a header's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For an unknown name: names that are near.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// For a conflict with a job: its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Word>,
    /// For a body with more than one fault: all of them, the first one included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// Joins this answer with the server's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// One fault of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// For programs: stable.
    pub code: Word,
    /// Which part of the request.
    pub field: String,
    /// For people.
    pub detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How long an attempt may run: milliseconds, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// At most this long; shown as milliseconds.
    After(Duration),
    /// For ever; shown as `"none"`.
    Never,
}

impl Serialize for Timeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(duration) => serializer.serialize_u64(millis(*duration)),
            Self::Never => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match value.as_u64() {
            Some(ms) => Ok(Self::After(Duration::from_millis(ms))),
            None if value == "none" => Ok(Self::Never),
            None => Err(D::Error::custom("expected milliseconds or \"none\"")),
        }
    }
}

/// An instant: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let instant: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(Timestamp(instant.as_millisecond())))
    }
}

impl std::fmt::Display for Time {
    /// An instant that no calendar has is shown as the nearest one that it has.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nearest = if self.0.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0.0).unwrap_or(nearest))
    }
}

/// A duration as it is shown.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_utc_with_milliseconds_and_read_again() {
        let time = Time(Timestamp(1_700_000_000_120));
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.120Z\"");
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }

    #[test]
    fn an_instant_outside_of_the_calendar_is_shown_as_the_nearest_one() {
        assert_eq!(Time(Timestamp(i64::MAX)).to_string(), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn a_full_job_reads_again_as_it_was_written() {
        let full = FullJob {
            job: Job { id: 7, timeout: Some(Timeout::Never), batch: Some(3), ..Job::default() },
            attempts: vec![Attempt { number: 1, exit_code: Some(3), ..Attempt::default() }],
            ..FullJob::default()
        };
        let text = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<FullJob>(&text).unwrap(), full);
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let text = serde_json::to_string(&Job::default()).unwrap();
        assert!(!text.contains("null"), "{text}");
        assert!(!text.contains("outcome"), "{text}");
    }
}
