//! Jobs as table rows and sentences.

use jiff::Timestamp;
use server::http::present::shapes::{Job, Phase};

use super::{WorkerRefView as _, in_words, optional, pairs, running_time, since};
use crate::failure::Exit;

/// The states of jobs that have ended for good.
pub(crate) const ENDED_STATES: [&str; 5] = ["succeeded", "failed", "cancelled", "expired", "lost"];

/// Texts about a job.
pub(crate) trait JobView {
    /// The columns of [`JobView::row`].
    const HEADING: [&str; 8];

    /// A row of the table of jobs.
    fn row(&self, now: Timestamp) -> Vec<String>;

    /// The columns of [`JobView::wide_row`].
    fn wide_heading() -> Vec<&'static str>;

    /// A row with more columns than [`JobView::row`].
    fn wide_row(&self, now: Timestamp) -> Vec<String>;

    /// Returns true if the state is final.
    fn has_ended(&self) -> bool;

    /// Returns true for a cancelled job whose container may still run.
    fn is_unconfirmed(&self) -> bool;

    /// The state, with the cause of a stop or the phase on the worker.
    fn state_text(&self) -> String;

    /// The reason why the job waits, or why it ended.
    fn reason_text(&self) -> String;

    /// The same; of a job whose start takes long, its worker, its age and its step.
    fn reason_text_at(&self, now: Timestamp) -> String;

    /// The final state with its reason: `failed, exit 3`. The server ends a followed log with the same text.
    fn end_text(&self) -> String;

    /// The exit code of a verb that waited for the job: that of its container. `None` if the job succeeded.
    fn failure_exit(&self) -> Option<Exit>;
}

impl JobView for Job {
    const HEADING: [&str; 8] = [">ID", "NAME", "STATE", "WORKER", ">TRIES", ">AGE", ">RAN", "WHY"];

    fn row(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.state_text(),
            self.worker.as_ref().map(|worker| worker.label()).unwrap_or_default(),
            self.attempt_count.to_string(),
            since(self.created_at, now),
            ran(self, now),
            why(self, now),
        ]
    }

    fn wide_heading() -> Vec<&'static str> {
        [&Self::HEADING[..], &[">PRIORITY", ">BATCH", "ACCEPTED", "BY", "SCHEDULE", "SLOT", "LABELS"]]
            .concat()
    }

    fn wide_row(&self, now: Timestamp) -> Vec<String> {
        let more = [
            self.priority.to_string(),
            optional(self.batch.as_ref()),
            self.created_at.to_string(),
            optional(self.submitted_by.as_ref()),
            optional(self.schedule.as_ref()),
            optional(self.scheduled_at.as_ref()),
            pairs(&self.labels),
        ];
        self.row(now).into_iter().chain(more).collect()
    }

    fn has_ended(&self) -> bool {
        ENDED_STATES.contains(&&*self.state)
    }

    fn is_unconfirmed(&self) -> bool {
        self.confirmed == Some(false)
    }

    fn state_text(&self) -> String {
        match (&self.stopping, &self.phase) {
            (Some(cause), _) if !self.has_ended() => format!("{} (stopping: {cause})", self.state),
            (_, Some(phase)) if phase.name != self.state => format!("{} ({})", self.state, phase_text(phase)),
            _ if self.is_unconfirmed() => format!("{} (unconfirmed)", self.state),
            _ => self.state.to_string(),
        }
    }

    fn reason_text(&self) -> String {
        match &self.pending_reason {
            Some(reason) => reason.text.to_string(),
            None if self.reason.is_empty() && self.state == "failed" => self.end_text(),
            None => self.reason.clone(),
        }
    }

    fn reason_text_at(&self, now: Timestamp) -> String {
        let is_silent = self.pending_reason.is_none();
        let start = is_silent.then(|| self.long_start_in_words(now.as_millisecond())).flatten();
        start.unwrap_or_else(|| self.reason_text())
    }

    fn end_text(&self) -> String {
        let reason = end_reason(self);
        match reason.as_str() {
            "" => self.state.to_string(),
            reason if reason.starts_with(&*self.state) => reason.to_owned(),
            reason => format!("{}, {reason}", self.state),
        }
    }

    fn failure_exit(&self) -> Option<Exit> {
        let code = self.exit_code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
        (self.state != "succeeded").then(|| code.map_or(Exit::Failed, Exit::Container))
    }
}

/// The running time of the latest container, which may still run.
fn ran(job: &Job, now: Timestamp) -> String {
    match (job.ran_ms, job.started_at) {
        (None, Some(started)) if job.state == "running" => since(started, now),
        (ran, _) => running_time(ran),
    }
}

/// The reason in a list, where the exit code of a success stands as well.
fn why(job: &Job, now: Timestamp) -> String {
    if job.state == "succeeded" { end_reason(job) } else { job.reason_text_at(now) }
}

/// The exit code of a program that ended by itself, unless it is 0, or else the outcome with its cause.
fn end_reason(job: &Job) -> String {
    // The reason says more than the exit code, unless it only repeats the code.
    let is_the_code = job.reason.is_empty() || job.reason.starts_with("exit code");
    match (&*job.state, job.outcome.as_deref(), job.exit_code) {
        ("succeeded", _, Some(code)) if code != 0 => format!("exit {code}"),
        ("succeeded", ..) => String::new(),
        ("failed", Some("failed"), Some(code)) if is_the_code => format!("exit {code}"),
        ("failed" | "lost", Some(outcome), code) => with_cause(outcome, &job.reason, code),
        // A cancelled job did not end by the outcome of its last attempt.
        _ => job.reason.clone(),
    }
}

/// An outcome with its cause, and with the exit code if the cause does not contain it.
fn with_cause(outcome: &str, cause: &str, exit_code: Option<i32>) -> String {
    let name = in_words(outcome);
    let text = match cause {
        "" => name,
        _ if cause.starts_with(&name) => cause.to_owned(),
        _ => format!("{name}: {cause}"),
    };
    match exit_code {
        Some(code) if code != 0 && !text.contains("exit code") => format!("{text} (exit code {code})"),
        _ => text,
    }
}

/// The phase with its progress and the number of failed pulls.
fn phase_text(phase: &Phase) -> String {
    let percent = phase.percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
    let failures = match phase.failures {
        None => String::new(),
        Some(1) => ", failed once".to_owned(),
        Some(times) => format!(", failed {times} times"),
    };
    format!("{}{percent}{failures}", phase.name)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    fn job(more: &serde_json::Value) -> Job {
        let mut json = serde_json::json!({"id": 7, "name": "resize", "state": "queued", "created_at": "2026-01-02T03:04:05.000Z"});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Job::deserialize(&json).unwrap()
    }

    #[test]
    fn a_row_has_the_running_time_and_the_reason_of_the_end() {
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
    fn a_row_tells_a_start_that_takes_long_unless_its_worker_is_silent() {
        let why =
            |more: serde_json::Value| job(&more).row("2026-01-02T03:05:06Z".parse().unwrap()).pop().unwrap();
        let mut assigned = serde_json::json!({"state": "assigned", "worker": {"id": 3, "name": "anna"},
            "assigned_at": "2026-01-02T03:04:06.000Z", "phase": {"name": "starting"}});
        assert_eq!(why(assigned.clone()), "starting on anna for 1m 0s (waits for Docker)");
        assigned["pending_reason"] =
            serde_json::json!({"code": "worker_unreachable", "text": "anna is silent"});
        assert_eq!(why(assigned), "anna is silent");
    }

    #[test]
    fn a_row_has_the_exit_code_of_a_success_if_it_is_another_than_0() {
        let row = |code: i32| {
            let json = serde_json::json!({"state": "succeeded", "outcome": "succeeded", "exit_code": code});
            job(&json).row("2026-01-02T03:05:05Z".parse().unwrap()).pop()
        };
        assert_eq!((row(0).as_deref(), row(24).as_deref()), (Some(""), Some("exit 24")));
    }

    #[test]
    fn the_running_time_of_a_running_job_ends_now() {
        let ran = |more: &serde_json::Value| ran(&job(more), "2026-01-02T03:05:05Z".parse().unwrap());
        let (started, ended) = ("2026-01-02T03:04:06.000Z", "2026-01-02T03:05:00.000Z");
        assert_eq!(ran(&serde_json::json!({"state": "running", "started_at": started})), "59s");
        let mut over = serde_json::json!({"state": "succeeded", "started_at": started, "ended_at": ended});
        assert_eq!(ran(&over), "", "the end of the job is not the end of its container");
        over["ran_ms"] = 54.into();
        assert_eq!(ran(&over), "54ms");
        let waiting = serde_json::json!({"state": "scheduled", "started_at": started, "ran_ms": 54});
        assert_eq!(ran(&waiting), "54ms", "its latest attempt");
    }

    #[test]
    fn the_state_contains_phase_and_stop() {
        let pulling = serde_json::json!({"state": "assigned", "phase": {"name": "pulling", "percent": 40}});
        assert_eq!(job(&pulling).state_text(), "assigned (pulling 40 %)");
        let again = |failures: u32| {
            job(&serde_json::json!({"state": "assigned", "phase": {"name": "pulling", "failures": failures}}))
        };
        assert_eq!(again(1).state_text(), "assigned (pulling, failed once)");
        assert_eq!(again(2).state_text(), "assigned (pulling, failed 2 times)");
        let stopping = serde_json::json!({"state": "running", "stopping": "cancel"});
        assert_eq!(job(&stopping).state_text(), "running (stopping: cancel)");
    }

    #[test]
    fn the_end_is_the_state_with_its_reason() {
        let end = |state: &str, outcome: &str, code: Option<i32>, reason: &str| {
            let json = serde_json::json!({"id": 7, "name": "resize", "created_at": "2026-01-02T03:04:05.000Z",
                "state": state, "outcome": outcome, "exit_code": code, "reason": reason});
            Job::deserialize(&json).unwrap().end_text()
        };
        assert_eq!(end("succeeded", "succeeded", Some(0), ""), "succeeded");
        assert_eq!(end("succeeded", "succeeded", Some(24), ""), "succeeded, exit 24");
        assert_eq!(end("failed", "failed", Some(3), "exit code 3"), "failed, exit 3");
        assert_eq!(end("failed", "failed", Some(143), "exit code 143 (signal 15)"), "failed, exit 143");
        let memory = "killed, probably out of memory (exit code 137)";
        assert_eq!(end("failed", "failed", Some(137), memory), format!("failed: {memory}"));
        let too_long = "stopped because it ran for too long; it ended with exit code 143 (signal 15)";
        assert_eq!(end("failed", "timed_out", Some(143), too_long), format!("failed, timed out: {too_long}"));
        assert_eq!(
            end("failed", "oom_killed", Some(137), "killed for its memory limit"),
            "failed, oom killed: killed for its memory limit (exit code 137)"
        );
        assert_eq!(end("failed", "pull_failed", None, "pull failed"), "failed, pull failed");
        assert_eq!(end("lost", "lost", None, "no report"), "lost: no report");
        assert_eq!(end("cancelled", "cancelled", Some(143), "cancelled"), "cancelled");
        assert_eq!(end("cancelled", "failed", Some(3), "cancelled by ann"), "cancelled by ann");
    }
}
