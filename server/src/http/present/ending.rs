//! How a job ended, in words: the reason, and the line that closes its output.

use protocol::AttemptNo;
use protocol::report::Outcome;
use scheduler::job::State;

use crate::http::present::shapes::Reason;
use crate::http::present::timeline::{attempt_end_text, in_words};
use crate::store::{AttemptRow, JobRow};

/// The last line of a job's output: `longshore: job 12 failed, exit 3`.
pub(crate) fn last_line(row: &JobRow) -> String {
    let (state, why) = (row.state.name(), why_ended(row));
    let told = match why.as_str() {
        "" => state.to_owned(),
        why if why.starts_with(state) => why.to_owned(),
        why => format!("{state}, {why}"),
    };
    // Parts of the text come from others, such as a container engine; keep it one line.
    format!("longshore: job {} {}", row.job, told.replace(char::is_control, " "))
}

/// The heading of the output of one of several attempts: `attempt 1 on w1: failed, exit 3`.
#[must_use]
pub fn attempt_heading(number: u32, worker: &str, outcome: Option<&str>, exit_code: Option<i32>) -> String {
    let exit = exit_code.filter(|code| *code != 0).map(|code| format!(", exit {code}")).unwrap_or_default();
    let outcome = outcome
        .map_or_else(|| "has not ended".to_owned(), |outcome| format!("{}{exit}", outcome.replace('_', " ")));
    format!("attempt {number} on {worker}: {outcome}")
}

/// The line about the end of an attempt after which its job goes on:
/// `longshore: attempt 1 on w1 failed: exit code 3; attempt 2 follows`.
pub(crate) fn retried_line(
    job: &JobRow,
    ended: &AttemptRow,
    next: Option<AttemptNo>,
    reason: Option<&Reason>,
) -> String {
    let (number, worker, id) = (ended.number, &ended.worker_name, job.job);
    let end = ended.outcome.map(|outcome| attempt_end_text(ended, outcome)).unwrap_or_default();
    let then = match (next, reason) {
        (Some(next), _) => format!("attempt {next} follows"),
        (None, Some(reason)) => format!("job {id} waits again: {}", reason.text),
        (None, None) => format!("job {id} waits again"),
    };
    format!("longshore: attempt {number} on {worker} {end}; {then}").replace(char::is_control, " ")
}

/// The reason of an end: the exit code of a program that ended by itself, unless it is 0, else the outcome and its cause.
pub(crate) fn why_ended(row: &JobRow) -> String {
    let last = row.attempt.as_ref();
    let exit_code = last.and_then(|attempt| attempt.exit_code);
    // Some programs fail for a cause that the exit code does not show.
    let is_the_code = row.reason.is_empty() || row.reason.starts_with("exit code");
    match (row.state, last.and_then(|attempt| attempt.outcome), exit_code) {
        (State::Succeeded, _, Some(code)) if code != 0 => format!("exit {code}"),
        (State::Succeeded, ..) => String::new(),
        (State::Failed, Some(Outcome::Failed), Some(code)) if is_the_code => format!("exit {code}"),
        (State::Failed | State::Lost, Some(outcome), _) => in_words(outcome, &row.reason, exit_code),
        // The outcome of the last attempt did not end the job.
        _ => row.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::report::OutputLengths;
    use protocol::{Fence, JobId, Nonce, Revision, Timestamp, WorkerId};

    use super::*;
    use crate::store::{FailureStatus, RunOnRole};

    fn ended(state: State, attempt: Option<(Outcome, Option<i32>)>, reason: &str) -> JobRow {
        let attempt = attempt.map(|(outcome, exit_code)| AttemptRow {
            number: AttemptNo(1),
            fence: Fence(7),
            nonce: Nonce(7),
            worker: WorkerId(1),
            worker_name: "w1".into(),
            assigned_at: Timestamp(2_000),
            started_at: None,
            container: String::new(),
            stopping: None,
            ended_at: Some(Timestamp(4_000)),
            outcome: Some(outcome),
            exit_code,
            message: String::new(),
            output: OutputLengths::default(),
            usage: Default::default(),
            result: None,
            released: None,
        });
        JobRow {
            job: JobId(12),
            definition: "resize".into(),
            revision: Revision(1),
            state,
            priority: 0,
            created_at: Timestamp(1_000),
            due_at: Timestamp(1_000),
            expires_at: None,
            timeout: None,
            batch: None,
            position: None,
            retry_of: None,
            submitted_by: None,
            slot: None,
            waits_for: None,
            run_on_role: RunOnRole::Alone,
            labels: Vec::new(),
            narrowing: None,
            ended_at: Some(Timestamp(5_000)),
            reason: reason.into(),
            confirmed: true,
            failure: FailureStatus::None,
            attempts: AttemptNo(u32::from(attempt.is_some())),
            attempt,
        }
    }

    #[test]
    fn the_last_line_names_each_end_and_its_cause() {
        let end = |state, attempt, reason| last_line(&ended(state, attempt, reason));
        let failed = |outcome, code, reason| end(State::Failed, Some((outcome, code)), reason);
        let own = |code, reason| failed(Outcome::Failed, Some(code), reason);
        assert_eq!(own(3, "exit code 3"), "longshore: job 12 failed, exit 3");
        assert_eq!(own(143, "exit code 143 (signal 15)"), "longshore: job 12 failed, exit 143");
        assert_eq!(
            own(137, "killed, probably out of memory (exit code 137)"),
            "longshore: job 12 failed: killed, probably out of memory (exit code 137)"
        );
        assert_eq!(
            failed(Outcome::TimedOut, Some(143), "stopped; it ended with exit code 143 (signal 15)"),
            "longshore: job 12 failed, timed out: stopped; it ended with exit code 143 (signal 15)"
        );
        assert_eq!(
            failed(Outcome::OomKilled, Some(137), "killed for its memory limit"),
            "longshore: job 12 failed, oom killed: killed for its memory limit (exit code 137)"
        );
        assert_eq!(
            failed(Outcome::StartFailed, Some(127), "exec: \"resise\": executable file not found in $PATH"),
            "longshore: job 12 failed, start failed: exec: \"resise\": executable file not found in $PATH (exit code 127)"
        );
        let no_words = failed(Outcome::PullFailed, None, "pull failed");
        assert_eq!(no_words, "longshore: job 12 failed, pull failed");
        let lost = end(State::Lost, Some((Outcome::Lost, None)), "nobody knows how it ended");
        assert_eq!(lost, "longshore: job 12 lost: nobody knows how it ended");
        let succeeded = end(State::Succeeded, Some((Outcome::Succeeded, Some(0))), "");
        let oddly = end(State::Succeeded, Some((Outcome::Succeeded, Some(24))), "");
        assert_eq!(oddly, "longshore: job 12 succeeded, exit 24");
        assert_eq!(succeeded, "longshore: job 12 succeeded");
    }

    #[test]
    fn the_last_line_of_a_cancelled_job_leaves_out_its_last_attempt() {
        let stopped = ended(State::Cancelled, Some((Outcome::Cancelled, Some(143))), "cancelled");
        assert_eq!(last_line(&stopped), "longshore: job 12 cancelled");
        for last in [None, Some((Outcome::Failed, Some(3)))] {
            let line = last_line(&ended(State::Cancelled, last, "cancelled by ann"));
            assert_eq!(line, "longshore: job 12 cancelled by ann");
        }
    }

    #[test]
    fn the_end_of_an_attempt_says_what_comes_next() {
        let row = ended(State::Queued, Some((Outcome::Failed, Some(3))), "");
        let attempt = row.attempt.clone().unwrap();
        let line = |next, reason| retried_line(&row, &attempt, next, reason);
        let failed = "longshore: attempt 1 on w1 failed (exit code 3)";
        assert_eq!(line(Some(AttemptNo(2)), None), format!("{failed}; attempt 2 follows"));
        assert_eq!(line(None, None), format!("{failed}; job 12 waits again"));
        let reason = Reason { code: "no_worker".into(), text: "no worker\nis connected".into() };
        let waits = format!("{failed}; job 12 waits again: no worker is connected");
        assert_eq!(line(None, Some(&reason)), waits);
    }

    #[test]
    fn the_last_line_stays_one_line_for_any_engine_message() {
        let row = ended(State::Failed, Some((Outcome::StartFailed, None)), "no such\nuser\x1b[2J");
        assert_eq!(last_line(&row), "longshore: job 12 failed, start failed: no such user [2J");
    }
}
