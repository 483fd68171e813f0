//! How a job ended, in one line. The server says the same at the end of a job's output (`last_line` in `server/src/http/show.rs`).

use crate::view::{Job, in_words};

impl Job {
    /// How it ended, and why: `failed, exit 3`.
    pub(crate) fn shown_end(&self) -> String {
        let why = self.why_ended();
        match why.as_str() {
            "" => self.state.clone(),
            why if why.starts_with(&self.state) => why.to_owned(),
            why => format!("{}, {why}", self.state),
        }
    }

    /// The exit code of a program that failed by itself, else the outcome with its cause.
    fn why_ended(&self) -> String {
        // Some programs fail for a cause that the exit code does not tell.
        let is_the_code = self.reason.is_empty() || self.reason.starts_with("exit code");
        match (self.state.as_str(), self.outcome.as_deref(), self.exit_code) {
            ("succeeded", ..) => String::new(),
            ("failed", Some("failed"), Some(code)) if is_the_code => format!("exit {code}"),
            ("failed" | "lost", Some(outcome), code) => with_cause(outcome, &self.reason, code),
            // It did not end by what its last attempt came to.
            _ => self.reason.clone(),
        }
    }
}

/// An outcome, how it came to that, and the program's exit code if nothing else tells it.
fn with_cause(outcome: &str, cause: &str, exit_code: Option<i32>) -> String {
    let name = in_words(outcome);
    let told = match cause {
        "" => name,
        _ if cause.starts_with(&name) => cause.to_owned(),
        _ => format!("{name}: {cause}"),
    };
    match exit_code {
        Some(code) if code != 0 && !told.contains("exit code") => format!("{told} (exit code {code})"),
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn each_end_has_its_name_and_its_reason() {
        let end = |state: &str, outcome: &str, code: Option<i32>, reason: &str| {
            let json = serde_json::json!({"id": 7, "name": "resize", "created_at": "2026-01-02T03:04:05.000Z",
                "state": state, "outcome": outcome, "exit_code": code, "reason": reason});
            Job::deserialize(&json).unwrap().shown_end()
        };
        assert_eq!(end("succeeded", "succeeded", Some(0), ""), "succeeded");
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
        assert_eq!(end("lost", "lost", None, "nobody knows"), "lost: nobody knows");
        assert_eq!(end("cancelled", "cancelled", Some(143), "cancelled"), "cancelled");
        assert_eq!(end("cancelled", "failed", Some(3), "cancelled by ann"), "cancelled by ann");
    }
}
