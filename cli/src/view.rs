//! The parts of the API's JSON that tables are made of (`docs/http-api.md`). `-o json` shows all of it instead.

mod worker;

use std::collections::BTreeMap;

use serde::Deserialize;

pub(crate) use self::worker::Worker;
use crate::{duration, words};

/// A job.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) stopping: Option<String>,
    pub(crate) pending_reason: Option<Reason>,
    pub(crate) phase: Option<Phase>,
    pub(crate) created_at: String,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    pub(crate) ran_ms: Option<i64>,
    #[serde(default)]
    pub(crate) attempt_count: u32,
    pub(crate) worker: Option<WorkerRef>,
    pub(crate) outcome: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) confirmed: Option<bool>,
    #[serde(default)]
    pub(crate) reason: String,
    pub(crate) warning: Option<Reason>,
}

impl Job {
    /// The columns of [`Self::row`].
    pub(crate) const HEADING: [&str; 8] = [">ID", "NAME", "STATE", "WORKER", ">TRIES", ">AGE", ">RAN", "WHY"];

    /// A line of a table.
    pub(crate) fn row(&self, now: jiff::Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.shown_state(),
            self.worker.as_ref().map(WorkerRef::shown).unwrap_or_default(),
            self.attempt_count.to_string(),
            since(&self.created_at, now),
            self.ran(now),
            self.why(),
        ]
    }

    /// Whether it is over, for good.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "succeeded" | "failed" | "cancelled" | "expired" | "lost")
    }

    /// Whether it was cancelled, and nobody knows that its container is gone.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.confirmed == Some(false)
    }

    /// Its state, with what goes on within it.
    pub(crate) fn shown_state(&self) -> String {
        match (&self.stopping, &self.phase) {
            (Some(cause), _) if !self.has_ended() => format!("{} (stopping: {cause})", self.state),
            (_, Some(phase)) if phase.name != self.state => format!("{} ({})", self.state, phase.shown()),
            _ if self.is_in_doubt() => format!("{} (unconfirmed)", self.state),
            _ => self.state.clone(),
        }
    }

    /// What it waits for, or why it ended so.
    pub(crate) fn why(&self) -> String {
        match &self.pending_reason {
            Some(reason) => reason.text.clone(),
            None if self.reason.is_empty() && self.state == "failed" => self.shown_end(),
            None => self.reason.clone(),
        }
    }

    /// How long the container of the latest attempt ran, or has been running.
    fn ran(&self, now: jiff::Timestamp) -> String {
        let running = || {
            let started = self.started_at.as_deref().filter(|_| self.state == "running").and_then(instant)?;
            Some(now.as_millisecond() - started.as_millisecond())
        };
        self.ran_ms.or_else(running).map(duration::show).unwrap_or_default()
    }
}

/// A job's story, beside the job.
#[derive(Debug, Deserialize)]
pub(crate) struct Story {
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) environment: Vec<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) revision: String,
    #[serde(default)]
    pub(crate) priority: i8,
    /// Milliseconds, or `none`; absent if it is the definition's.
    pub(crate) timeout: Option<serde_json::Value>,
    pub(crate) batch: Option<u64>,
    pub(crate) retry_of: Option<u64>,
    #[serde(default)]
    pub(crate) retry_of_removed: bool,
    #[serde(default)]
    pub(crate) late_reports_left_out: u64,
    pub(crate) cancel: Option<String>,
    pub(crate) result: Option<serde_json::Value>,
    #[serde(default)]
    pub(crate) attempts: Vec<Attempt>,
    #[serde(default)]
    pub(crate) timeline: Vec<Event>,
}

/// One try of a job.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) worker: WorkerRef,
    pub(crate) ran_ms: Option<i64>,
    #[serde(default)]
    pub(crate) container: String,
    pub(crate) outcome: Option<String>,
    pub(crate) exit_code: Option<i32>,
    #[serde(default)]
    pub(crate) message: String,
}

/// Something that happened to a job.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) at: String,
    pub(crate) event: String,
    pub(crate) attempt: Option<u32>,
    pub(crate) worker: Option<WorkerRef>,
    #[serde(default)]
    pub(crate) text: String,
}

/// A worker as others mention it.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkerRef {
    pub(crate) id: u64,
    #[serde(default)]
    pub(crate) name: String,
}

impl WorkerRef {
    /// Its name, or its number if it has none.
    pub(crate) fn shown(&self) -> String {
        if self.name.is_empty() { self.id.to_string() } else { self.name.clone() }
    }
}

/// A stable code, and the same in words.
#[derive(Debug, Deserialize)]
pub(crate) struct Reason {
    pub(crate) text: String,
}

/// Where an attempt stands on its worker.
#[derive(Debug, Deserialize)]
pub(crate) struct Phase {
    name: String,
    percent: Option<u8>,
    failures: Option<u32>,
}

impl Phase {
    /// With how far it has come, and how often it had to begin again.
    fn shown(&self) -> String {
        let percent = self.percent.map(|it| format!(" {it} %")).unwrap_or_default();
        let failures = match self.failures {
            None => String::new(),
            Some(1) => ", failed once".to_owned(),
            Some(times) => format!(", failed {times} times"),
        };
        format!("{}{percent}{failures}", self.name)
    }
}

/// A definition.
#[derive(Debug, Deserialize)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) revision: String,
    pub(crate) enabled: bool,
    pub(crate) description: Option<String>,
    pub(crate) runtime: String,
    #[serde(default)]
    pub(crate) image: String,
    #[serde(default)]
    pub(crate) entrypoint: Vec<String>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) waiting: Vec<Waiting>,
}

impl Definition {
    /// The columns of [`Self::row`].
    pub(crate) const HEADING: [&str; 7] =
        ["NAME", "RUNTIME", "IMAGE", "COMMAND", ">WAITING", "REVISION", "DESCRIPTION"];

    /// A line of a table.
    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            if self.enabled { self.name.clone() } else { format!("{} (disabled)", self.name) },
            self.runtime.clone(),
            self.image.clone(),
            shortened(&words::in_shell(self.entrypoint.iter().chain(&self.command)), 40),
            self.waiting.iter().map(|waiting| waiting.count).sum::<u64>().to_string(),
            shortened(&self.revision, 12),
            shortened(self.description.as_deref().unwrap_or_default(), 40),
        ]
    }
}

/// Jobs of a definition that wait for the same reason.
#[derive(Debug, Deserialize)]
pub(crate) struct Waiting {
    count: u64,
}

/// What a new reading of jobs.yaml has changed.
#[derive(Debug, Deserialize)]
pub(crate) struct Reloaded {
    definitions: u64,
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Reloaded {
    /// In one line.
    pub(crate) fn shown(&self) -> String {
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let differences: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .collect();
        let noun = if self.definitions == 1 { "definition" } else { "definitions" };
        let told =
            if differences.is_empty() { "nothing has changed".to_owned() } else { differences.join("; ") };
        format!("{} {noun}; {told}", self.definitions)
    }
}

/// A word of the API as people write it: `timed_out` is two.
pub(crate) fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// Names and values, in one line.
pub(crate) fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// How long ago an instant was.
fn since(text: &str, now: jiff::Timestamp) -> String {
    instant(text)
        .map_or_else(|| text.to_owned(), |then| duration::show(now.as_millisecond() - then.as_millisecond()))
}

fn instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(more: &serde_json::Value) -> Job {
        let mut json = serde_json::json!({"id": 7, "name": "resize", "state": "queued", "created_at": "2026-01-02T03:04:05.000Z"});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Job::deserialize(&json).unwrap()
    }

    #[test]
    fn a_row_tells_how_long_a_job_ran_and_why_it_ended_so() {
        let job = job(&serde_json::json!({
            "state": "failed", "outcome": "oom_killed", "exit_code": 137, "attempt_count": 2, "worker": {"id": 3, "name": "anna"},
            "started_at": "2026-01-02T03:04:06.000Z", "ended_at": "2026-01-02T03:05:00.000Z", "ran_ms": 2_500,
        }));
        let row = job.row("2026-01-02T03:05:05Z".parse().unwrap());
        assert_eq!(
            row,
            ["7", "resize", "failed", "anna", "2", "1m00s", "2.5s", "failed, oom killed (exit code 137)"]
        );
    }

    #[test]
    fn how_long_a_container_ran_is_what_its_attempt_says_and_until_now_while_it_runs() {
        let ran = |more: &serde_json::Value| job(more).ran("2026-01-02T03:05:05Z".parse().unwrap());
        let (started, ended) = ("2026-01-02T03:04:06.000Z", "2026-01-02T03:05:00.000Z");
        assert_eq!(ran(&serde_json::json!({"state": "running", "started_at": started})), "59s");
        let mut over = serde_json::json!({"state": "succeeded", "started_at": started, "ended_at": ended});
        assert_eq!(ran(&over), "", "the end of a job is not that of its container");
        over["ran_ms"] = 54.into();
        assert_eq!(ran(&over), "54ms");
        let waiting = serde_json::json!({"state": "scheduled", "started_at": started, "ran_ms": 54});
        assert_eq!(ran(&waiting), "54ms", "its latest attempt");
    }

    #[test]
    fn the_command_of_a_definition_begins_with_its_entrypoint() {
        let definition = serde_json::json!({"name": "a", "revision": "5c1e", "enabled": true, "runtime": "docker",
            "entrypoint": ["/bin/sh", "-c"], "command": ["a b"]});
        assert_eq!(Definition::deserialize(&definition).unwrap().row()[3], "/bin/sh -c 'a b'");
    }

    #[test]
    fn a_state_shows_what_goes_on_within_it() {
        let pulling = serde_json::json!({"state": "assigned", "phase": {"name": "pulling", "percent": 40}});
        assert_eq!(job(&pulling).shown_state(), "assigned (pulling 40 %)");
        let again = |failures: u32| {
            job(&serde_json::json!({"state": "assigned", "phase": {"name": "pulling", "failures": failures}}))
        };
        assert_eq!(again(1).shown_state(), "assigned (pulling, failed once)");
        assert_eq!(again(2).shown_state(), "assigned (pulling, failed 2 times)");
        let stopping = serde_json::json!({"state": "running", "stopping": "cancel"});
        assert_eq!(job(&stopping).shown_state(), "running (stopping: cancel)");
    }
}
