//! From rows and facts to what is shown: jobs, with why they wait and what has happened to them.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::JobId;
use protocol::report::{Outcome, Phase};
use scheduler::job::State;
use scheduler::snapshot::{Snapshot, WorkerState};
use scheduler::step::{Note, PendingReason};

use super::problem::pending_text;
use super::view::{self, Time, WorkerRef};
use crate::store::{AttemptRow, JobRecord, JobRow};

/// Shows jobs against the facts of one moment.
pub(super) struct Show {
    snapshot: Arc<Snapshot>,
    phases: HashMap<JobId, Phase>,
}

impl Show {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        let phases = snapshot.phases.iter().copied().collect();
        Self { snapshot, phases }
    }

    /// A job as lists show it.
    pub(super) fn job(&self, row: JobRow) -> view::Job {
        let attempt = row.attempt.as_ref();
        let live = attempt.filter(|attempt| attempt.ended_at.is_none() && !row.state.has_ended());
        view::Job {
            stopping: live.and_then(|attempt| attempt.stopping).map(|cause| cause.name().into()),
            pending_reason: self.pending(&row).map(pending),
            phase: (row.state == State::Assigned).then(|| self.phase(row.job)).flatten(),
            worker_unreachable_since: live.and_then(|attempt| self.unreachable_since(attempt)),
            priority: row.priority,
            due_at: Time(row.due_at),
            started_at: attempt.and_then(|attempt| attempt.started_at).map(Time),
            ended_at: row.ended_at.map(Time),
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
        let JobRecord { row, body, past, notes } = record;
        let attempts: Vec<AttemptRow> = past.into_iter().chain(row.attempt.clone()).collect();
        let result = attempts.last().and_then(|attempt| attempt.result.as_deref());
        view::FullJob {
            args: body.args,
            environment: body.environment.into_iter().map(|(name, _)| name).collect(),
            // What a program left that is no JSON is shown as the text that it is.
            result: result.map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into())),
            timeline: timeline(&row, &attempts, &notes),
            late_reports: notes.iter().filter_map(late_report).collect(),
            attempts: attempts.into_iter().map(attempt).collect(),
            job: self.job(row),
        }
    }

    fn pending(&self, row: &JobRow) -> Option<PendingReason> {
        match row.state {
            State::Scheduled => Some(PendingReason::NotDue),
            State::Quarantined => Some(PendingReason::Quarantined),
            State::Queued => {
                let known = self.snapshot.waiting.iter().find(|(revision, ..)| *revision == row.revision);
                Some(known.map_or(PendingReason::Soon, |(_, reason, _)| *reason))
            }
            _ => None,
        }
    }

    fn phase(&self, job: JobId) -> Option<view::Phase> {
        let (name, percent) = match *self.phases.get(&job)? {
            Phase::Backlog => ("backlog", None),
            Phase::Pulling { percent } => ("pulling", percent),
            Phase::Starting => ("starting", None),
            Phase::Running => ("running", None),
            Phase::Stopping => ("stopping", None),
            Phase::Ended => ("ended", None),
            Phase::Unknown => return None,
        };
        Some(view::Phase { name: name.into(), percent })
    }

    fn unreachable_since(&self, attempt: &AttemptRow) -> Option<Time> {
        let worker = self.snapshot.workers.iter().find(|worker| worker.id == attempt.worker)?;
        (worker.state == WorkerState::Unreachable).then_some(Time(worker.since))
    }
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
    let exit =
        row.attempt.as_ref().and_then(|attempt| attempt.exit_code).filter(|_| row.state != State::Cancelled);
    let how = match exit {
        _ if row.state == State::Succeeded => String::new(),
        Some(code) if code != 0 => format!(", exit {code}"),
        _ if row.reason.is_empty() => String::new(),
        _ => format!(", {}", row.reason),
    };
    format!("longshore: job {} {}{how}", row.job, row.state.name())
}

fn worker_of(attempt: &AttemptRow) -> WorkerRef {
    WorkerRef { id: attempt.worker.0, name: attempt.worker_name.to_string() }
}

fn attempt(row: AttemptRow) -> view::Attempt {
    view::Attempt {
        number: row.number.0,
        fence: row.fence.0,
        worker: worker_of(&row),
        assigned_at: Time(row.assigned_at),
        started_at: row.started_at.map(Time),
        ended_at: row.ended_at.map(Time),
        ran_ms: row.started_at.zip(row.ended_at).map(|(from, to)| view::millis(to.since(from))),
        container: row.container,
        stopping: row.stopping.map(|cause| cause.name().into()),
        outcome: row.outcome.map(|outcome| outcome.name().into()),
        released: row.released.map(|cause| cause.name().into()),
        exit_code: row.exit_code,
        message: row.message,
        output: row
            .ended_at
            .map(|_| view::OutputBytes { stdout_bytes: row.output.stdout, stderr_bytes: row.output.stderr }),
    }
}

fn timeline(
    row: &JobRow,
    attempts: &[AttemptRow],
    notes: &[(protocol::Timestamp, Note)],
) -> Vec<view::Event> {
    let event =
        |at, name: &'static str| view::Event { at: Time(at), event: name.into(), ..view::Event::default() };
    let mut events = vec![event(row.created_at, "accepted")];
    for attempt in attempts {
        let of = |mut event: view::Event, text: String| {
            event.attempt = Some(attempt.number.0);
            event.worker = Some(worker_of(attempt));
            event.text = text;
            event
        };
        events.push(of(event(attempt.assigned_at, "assigned"), String::new()));
        if let Some(at) = attempt.started_at {
            events.push(of(event(at, "started"), attempt.container.clone()));
        }
        if let Some((at, outcome)) = attempt.ended_at.zip(attempt.outcome) {
            events.push(of(event(at, "attempt_ended"), ending(attempt, outcome)));
        }
    }
    let number_of =
        |fence| attempts.iter().find(|attempt| attempt.fence == fence).map(|attempt| attempt.number.0);
    for (at, note) in notes {
        events.push(match note {
            Note::CancelRequested { by } => {
                view::Event { text: format!("by {by}"), ..event(*at, "cancel_requested") }
            }
            Note::LateReport { token, worker, said } => view::Event {
                attempt: number_of(token.fence),
                worker: Some(WorkerRef { id: worker.0, name: String::new() }),
                text: said.clone(),
                ..event(*at, "late_report")
            },
            Note::Unreachable { token, worker } => view::Event {
                attempt: number_of(token.fence),
                worker: Some(WorkerRef { id: worker.0, name: String::new() }),
                ..event(*at, "worker_unreachable")
            },
            Note::Revived { token, worker } => view::Event {
                attempt: number_of(token.fence),
                worker: Some(WorkerRef { id: worker.0, name: String::new() }),
                ..event(*at, "worker_returned")
            },
        });
    }
    events.sort_by_key(|event| event.at);
    // Its end comes last, also where a clock has stepped back.
    if let Some(at) = row.ended_at {
        events.push(view::Event { text: row.reason.clone(), ..event(at, row.state.name()) });
    }
    events
}

fn ending(attempt: &AttemptRow, outcome: Outcome) -> String {
    match (attempt.exit_code, attempt.released) {
        (_, Some(cause)) => format!("{}, {}", outcome.name(), cause.name()),
        (Some(code), None) => format!("{}, exit {code}", outcome.name()),
        (None, None) if attempt.message.is_empty() => outcome.name().to_owned(),
        (None, None) => format!("{}: {}", outcome.name(), attempt.message),
    }
}

fn late_report((at, note): &(protocol::Timestamp, Note)) -> Option<view::LateReport> {
    let Note::LateReport { token, worker, said } = note else { return None };
    Some(view::LateReport { at: Time(*at), fence: token.fence.0, worker: worker.0, said: said.clone() })
}
