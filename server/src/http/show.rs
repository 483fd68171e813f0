//! From rows and facts to what is shown: jobs, with why they wait, and how they ended in a line. What has happened to them is told in
//! `story`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::order::{StopCause, phase_name};
use protocol::report::{Availability, Outcome, Phase};
use protocol::{JobId, Revision, WorkerId};
use scheduler::definition::{Definition, OnLost};
use scheduler::job::State;
use scheduler::retry::{self, Budget};
use scheduler::snapshot::{Snapshot, WorkerFacts, WorkerState};
use scheduler::step::PendingReason;

use super::desk::Desk;
use super::problem::pending_text;
use super::story::{Story, in_words, ran_ms, worker_of};
use super::view::{self, Time};
use crate::store::{AttemptRow, JobRecord, JobRow};

/// Shows jobs against the facts of one moment.
pub(super) struct Show {
    snapshot: Arc<Snapshot>,
    phases: HashMap<JobId, Phase>,
    /// What jobs of a revision wait for that any worker may run, or only this one.
    waiting: HashMap<(Revision, Option<WorkerId>), PendingReason>,
    lease: Duration,
}

impl Desk {
    /// Shows jobs against the facts of this moment.
    pub(super) fn show(&self) -> Show {
        let snapshot = self.app.engine.snapshot();
        let phases = snapshot.phases.iter().copied().collect();
        let waiting = snapshot.waiting.iter().map(|it| ((it.revision, it.pinned_to), it.reason)).collect();
        Show { snapshot, phases, waiting, lease: self.app.intervals.lease }
    }
}

impl Show {
    /// A job as lists show it.
    pub(super) fn job(&self, row: JobRow) -> view::Job {
        let attempt = row.attempt.as_ref();
        let live = live(&row);
        view::Job {
            stopping: live.and_then(|attempt| attempt.stopping).map(|cause| cause.name().into()),
            pending_reason: self.waits_for(&row),
            phase: (row.state == State::Assigned).then(|| self.phase(row.job)).flatten(),
            worker_unreachable_since: live.and_then(|attempt| self.unreachable_since(attempt)),
            priority: row.priority,
            due_at: Time(row.due_at),
            started_at: attempt.and_then(|attempt| attempt.started_at).map(Time),
            ended_at: row.ended_at.map(Time),
            ran_ms: attempt.and_then(ran_ms),
            attempt_count: row.attempts.0,
            worker: attempt.map(worker_of),
            outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name().into()),
            exit_code: attempt.and_then(|attempt| attempt.exit_code),
            confirmed: (row.state == State::Cancelled).then_some(row.confirmed),
            timeout: row.timeout.map(timeout),
            batch: row.batch.map(|job| job.0),
            retry_of: row.retry_of.map(|job| job.0),
            labels: row.labels.into_iter().collect(),
            reason: row.reason,
            ..job_in_state(row.job, row.definition, row.revision.to_string(), row.state, Time(row.created_at))
        }
    }

    /// A job with its whole story.
    pub(super) fn full(&self, record: JobRecord) -> view::FullJob {
        let JobRecord { row, body, past, notes, late_left_out, retry_of_removed } = record;
        let attempts: Vec<AttemptRow> = past.into_iter().chain(row.attempt.clone()).collect();
        let story = Story { row: &row, attempts: &attempts, notes: &notes };
        let result = attempts.last().and_then(|attempt| attempt.result.as_deref());
        view::FullJob {
            args: body.args,
            environment: body.environment.into_iter().map(|(name, _)| name).collect(),
            // What a program left that is no JSON is shown as the text that it is.
            result: result.map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into())),
            cancel: story.is_cancelled_too_late().then(|| "too_late".into()),
            timeline: story.timeline(),
            late_reports: story.late_reports(),
            late_reports_left_out: (late_left_out > 0).then_some(late_left_out),
            retry_of_removed,
            attempts: story.attempts(),
            job: self.job(row),
        }
    }

    /// What it waits for: its time, a place, a person, or a worker or a runtime that does not answer.
    pub(super) fn waits_for(&self, row: &JobRow) -> Option<view::Reason> {
        match self.pending(row) {
            Some(PendingReason::NotDue) => {
                let what = match row.attempts.0 {
                    0 => "it".to_owned(),
                    past => format!("its attempt {}", past + 1),
                };
                let text = format!("{what} is not due before {}", Time(row.due_at)).into();
                Some(view::Reason { text, ..pending(PendingReason::NotDue) })
            }
            Some(reason) => Some(pending(reason)),
            None => {
                let attempt = live(row)?;
                self.absence(row, attempt).or_else(|| self.silence(row, attempt))
            }
        }
    }

    /// That its worker is silent, for how long that is borne, and what comes then.
    fn absence(&self, row: &JobRow, attempt: &AttemptRow) -> Option<view::Reason> {
        let since = self.unreachable_since(attempt)?;
        let then = self.definition(row).map(|definition| {
            // It is counted from when the worker was last heard of: that is a lease ago.
            let given_up = Time(since.0 - self.lease + definition.patience());
            let becomes = match definition.loss.on_lost {
                _ if attempt.stopping == Some(StopCause::Cancel) => "is cancelled",
                OnLost::Retry => "is tried again",
                OnLost::Fail => "ends as lost",
                OnLost::Wait => {
                    return format!(
                        "; it is waited for, until it is back or somebody \
             releases the job (longshore release {})",
                        row.job
                    );
                }
            };
            format!("; about {given_up} its attempt is given up, and the job {becomes}")
        });
        let text =
            format!("its worker has been unreachable since {since}{}", then.unwrap_or_default()).into();
        Some(view::Reason { code: "worker_unreachable".into(), text })
    }

    /// That its runtime does not answer its worker, or that its worker was started without it: nobody can say what its container does, or
    /// stop it, until that is different.
    fn silence(&self, row: &JobRow, attempt: &AttemptRow) -> Option<view::Reason> {
        let worker = self.worker(attempt)?;
        if !matches!(worker.state, WorkerState::Ready | WorkerState::Draining) {
            return None;
        }
        let kind = self.definition(row)?.runtime();
        let name = kind.name();
        let what = match worker.runtimes.iter().find(|(it, _)| *it == kind) {
            Some((_, Availability::Available)) => return None,
            Some((_, Availability::Unavailable(why))) if why.is_empty() => {
                format!("its runtime {name} does not answer its worker")
            }
            Some((_, Availability::Unavailable(why))) => {
                format!("its runtime {name} does not answer its worker ({why})")
            }
            None => format!("its worker was started without its runtime {name}"),
        };
        let waits = match attempt.stopping {
            Some(_) => "nobody can say whether it is stopped",
            None => "nobody can say whether it still runs",
        };
        let text = format!(
            "{what}: {waits}, and it is waited for, until the runtime is back or somebody \
             releases the job (longshore release {})",
            row.job
        );
        Some(view::Reason { code: "runtime_unavailable".into(), text: text.into() })
    }

    fn pending(&self, row: &JobRow) -> Option<PendingReason> {
        match row.state {
            State::Scheduled => Some(PendingReason::NotDue),
            State::Quarantined => Some(PendingReason::Quarantined),
            State::Queued => {
                // Only where jobs are pinned to the worker of their last attempt is there a lane of its own for them; not after a failure
                // of the platform.
                let is_own = |outcome| retry::budget(outcome) != Budget::Platform;
                let last =
                    row.attempt.as_ref().filter(|it| it.outcome.is_none_or(is_own)).map(|it| it.worker);
                let pinned = last.and_then(|last| self.waiting.get(&(row.revision, Some(last))));
                let reason = pinned.or_else(|| self.waiting.get(&(row.revision, None)));
                Some(reason.copied().unwrap_or(PendingReason::Soon))
            }
            _ => None,
        }
    }

    fn phase(&self, job: JobId) -> Option<view::Phase> {
        phase(*self.phases.get(&job)?)
    }

    /// What it was made with, whatever jobs.yaml says now.
    fn definition(&self, row: &JobRow) -> Option<&Definition> {
        self.snapshot.definitions.get(&row.revision).map(Arc::as_ref)
    }

    fn worker(&self, attempt: &AttemptRow) -> Option<&WorkerFacts> {
        self.snapshot.workers.iter().find(|worker| worker.id == attempt.worker)
    }

    fn unreachable_since(&self, attempt: &AttemptRow) -> Option<Time> {
        let worker = self.worker(attempt)?;
        matches!(worker.state, WorkerState::Unreachable | WorkerState::Cloned).then_some(Time(worker.since))
    }
}

/// Its current attempt, if it is on a worker.
fn live(row: &JobRow) -> Option<&AttemptRow> {
    row.attempt.as_ref().filter(|attempt| attempt.ended_at.is_none() && !row.state.has_ended())
}

/// Where an attempt stands on its worker, if that is known.
pub(super) fn phase(phase: Phase) -> Option<view::Phase> {
    let (percent, failures) = match phase {
        Phase::Pulling { percent, failures } => (percent, failures),
        Phase::Unknown => return None,
        _ => (None, 0),
    };
    let failures = (failures > 0).then_some(failures);
    Some(view::Phase { name: phase_name(phase).into(), percent, failures })
}

/// A job of which little more than the state is known.
pub(super) fn job_in_state(
    job: JobId,
    name: String,
    revision: String,
    state: State,
    created_at: Time,
) -> view::Job {
    view::Job {
        id: job.0,
        name,
        revision,
        state: state.name().into(),
        queuing: matches!(state, State::Scheduled | State::Queued | State::Assigned | State::Quarantined),
        running: state == State::Running,
        success: state == State::Succeeded,
        created_at,
        due_at: created_at,
        ..view::Job::default()
    }
}

/// Why a job waits, in code and words.
pub(super) fn pending(reason: PendingReason) -> view::Reason {
    view::Reason { code: reason.name().into(), text: pending_text(reason).into() }
}

/// A timeout as it is shown.
pub(super) fn timeout(timeout: Option<std::time::Duration>) -> view::Timeout {
    timeout.map_or(view::Timeout::Never, view::Timeout::After)
}

/// How a job ended, as the last line of its output: `longshore: job 12 failed, exit 3`.
pub(super) fn last_line(row: &JobRow) -> String {
    let (state, why) = (row.state.name(), why_ended(row));
    let told = match why.as_str() {
        "" => state.to_owned(),
        why if why.starts_with(state) => why.to_owned(),
        why => format!("{state}, {why}"),
    };
    // Others have written parts of it, such as a container engine: it stays one line all the same.
    format!("longshore: job {} {}", row.job, told.replace(char::is_control, " "))
}

/// Why a job ended so: the exit code of a program that failed by itself, else the outcome with its cause.
fn why_ended(row: &JobRow) -> String {
    let last = row.attempt.as_ref();
    let exit_code = last.and_then(|attempt| attempt.exit_code);
    // Some programs fail for a cause that the exit code does not tell.
    let is_the_code = row.reason.is_empty() || row.reason.starts_with("exit code");
    match (row.state, last.and_then(|attempt| attempt.outcome), exit_code) {
        (State::Succeeded, ..) => String::new(),
        (State::Failed, Some(Outcome::Failed), Some(code)) if is_the_code => format!("exit {code}"),
        (State::Failed | State::Lost, Some(outcome), _) => in_words(outcome, &row.reason, exit_code),
        // It did not end by what its last attempt came to.
        _ => row.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::report::OutputLengths;
    use protocol::{AttemptNo, Fence, Nonce, Timestamp};

    use super::*;

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
            timeout: None,
            batch: None,
            retry_of: None,
            labels: Vec::new(),
            ended_at: Some(Timestamp(5_000)),
            reason: reason.into(),
            confirmed: true,
            attempts: AttemptNo(u32::from(attempt.is_some())),
            attempt,
        }
    }

    #[test]
    fn the_last_line_names_each_end_and_tells_why() {
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
        assert_eq!(succeeded, "longshore: job 12 succeeded");
    }

    #[test]
    fn the_last_line_of_a_cancelled_job_tells_nothing_of_its_last_attempt() {
        let stopped = ended(State::Cancelled, Some((Outcome::Cancelled, Some(143))), "cancelled");
        assert_eq!(last_line(&stopped), "longshore: job 12 cancelled");
        for last in [None, Some((Outcome::Failed, Some(3)))] {
            let line = last_line(&ended(State::Cancelled, last, "cancelled by ann"));
            assert_eq!(line, "longshore: job 12 cancelled by ann");
        }
    }

    #[test]
    fn the_last_line_is_one_line_whatever_an_engine_wrote() {
        let row = ended(State::Failed, Some((Outcome::StartFailed, None)), "no such\nuser\x1b[2J");
        assert_eq!(last_line(&row), "longshore: job 12 failed, start failed: no such user [2J");
    }
}
