//! What has happened to a job, in words: its attempts, and everything between its acceptance and its end.
//!
//! All of it comes from committed rows, so that it tells the same tomorrow. What is waited for at this moment is not told here.

use protocol::report::Outcome;
use protocol::{Fence, Timestamp, Token, WorkerId};
use scheduler::job::State;
use scheduler::step::Note;

use super::view::{self, Time, WorkerRef};
use crate::store::{AttemptRow, JobRow};

/// A job's past.
pub(super) struct Story<'r> {
    pub(super) row: &'r JobRow,
    /// Oldest first.
    pub(super) attempts: &'r [AttemptRow],
    /// Oldest first.
    pub(super) notes: &'r [(Timestamp, Note)],
}

impl Story<'_> {
    /// Every attempt, oldest first.
    pub(super) fn attempts(&self) -> Vec<view::Attempt> {
        self.attempts.iter().map(attempt).collect()
    }

    /// What happened, oldest first.
    pub(super) fn timeline(&self) -> Vec<view::Event> {
        let (asked, told) = self.notes.iter().partition(|(_, note)| is_asked_for(note));
        let mut events = vec![self.accepted()];
        // What somebody asks for stands before what follows from it, also within one millisecond.
        events.extend(self.told(asked));
        events.extend(self.attempts.iter().flat_map(lived));
        events.extend(self.told(told));
        events.sort_by_key(|event| event.at);
        events.extend(self.held_back());
        let Some(at) = self.row.ended_at else { return events };
        // Its end comes last, also where a clock has stepped back; only what a worker tells afterwards comes behind it.
        let is_later = |event: &view::Event| match &*event.event {
            "cancel_confirmed" => true,
            "late_report" | "container_gone" => event.at > Time(at),
            _ => false,
        };
        let (later, mut events): (Vec<_>, Vec<_>) = events.into_iter().partition(is_later);
        events.push(view::Event { text: self.row.reason.clone(), ..event(at, self.row.state.name()) });
        events.extend(later);
        events
    }

    /// Whether somebody wanted it to be cancelled when what ended it had come first (FAULTS.md F20).
    pub(super) fn is_cancelled_too_late(&self) -> bool {
        let is_wanted = |(_, note): &(Timestamp, Note)| matches!(note, Note::CancelRequested { .. });
        let has_another_end = self.row.state.has_ended() && self.row.state != State::Cancelled;
        has_another_end && self.notes.iter().any(is_wanted)
    }

    /// Reports that came too late to be believed, oldest first.
    pub(super) fn late_reports(&self) -> Vec<view::LateReport> {
        let late = |(at, note): &(Timestamp, Note)| {
            let Note::LateReport { token, worker, said } = note else { return None };
            Some(view::LateReport {
                at: Time(*at),
                attempt: self.number_of(token.fence),
                fence: token.fence.0,
                worker: self.worker(*worker),
                said: said.clone(),
            })
        };
        self.notes.iter().filter_map(late).collect()
    }

    fn accepted(&self) -> view::Event {
        let text = self.row.retry_of.map(|job| format!("tries job {job} again"));
        view::Event { text: text.unwrap_or_default(), ..event(self.row.created_at, "accepted") }
    }

    fn told(&self, notes: Vec<&(Timestamp, Note)>) -> Vec<view::Event> {
        notes.into_iter().map(|(at, note)| self.note(*at, note)).collect()
    }

    fn note(&self, at: Timestamp, note: &Note) -> view::Event {
        let of = |fence, worker, event: view::Event| view::Event {
            attempt: self.number_of(fence),
            worker: Some(self.worker(worker)),
            ..event
        };
        let said = |name, text: String| view::Event { text, ..event(at, name) };
        match note {
            Note::CancelRequested { by } if self.is_cancelled_too_late() => {
                said("cancel_requested", format!("by {by}: too late, what ended it had come first"))
            }
            Note::CancelRequested { by } => said("cancel_requested", format!("by {by}")),
            Note::Freed { by } => said("released", format!("by {by}")),
            Note::Confirmed { token, worker } => {
                let name = if self.is_confirmed_by(*token) { "cancel_confirmed" } else { "container_gone" };
                of(token.fence, *worker, said(name, "its container is gone".into()))
            }
            Note::LateReport { token, worker, said: word } => {
                let text = format!("it said \"{}\", too late to be believed", word.replace('_', " "));
                of(token.fence, *worker, said("late_report", text))
            }
            Note::Unreachable { token, worker } => {
                of(token.fence, *worker, said("worker_unreachable", "its lease ran out".into()))
            }
            Note::Revived { token, worker } => {
                of(token.fence, *worker, said("worker_returned", "it keeps the attempt".into()))
            }
        }
    }

    /// Whether this attempt was the last one that kept its cancel from being confirmed.
    fn is_confirmed_by(&self, token: Token) -> bool {
        let told = |(at, note): &&(Timestamp, Note)| {
            matches!(note, Note::Confirmed { .. }) && self.row.ended_at.is_some_and(|end| *at >= end)
        };
        let last = self
            .notes
            .iter()
            .rfind(told)
            .filter(|_| self.row.state == State::Cancelled && self.row.confirmed);
        last.is_some_and(|(_, note)| matches!(note, Note::Confirmed { token: of, .. } if *of == token))
    }

    /// That it is held back now. Once it was let go on, the one who did so is told.
    fn held_back(&self) -> Option<view::Event> {
        let last = self.attempts.last().filter(|_| self.row.state == State::Quarantined)?;
        let at = last.ended_at?;
        let lost = self.attempts.iter().filter(|it| it.outcome.is_some_and(is_lost_by_the_platform)).count();
        let times = if lost == 1 { "once".to_owned() } else { format!("{lost} times") };
        let text =
            format!("the platform failed it {times}: it is held until somebody releases or cancels it");
        Some(view::Event { text, ..event(at, "quarantined") })
    }

    fn number_of(&self, fence: Fence) -> Option<u32> {
        self.attempts.iter().find(|attempt| attempt.fence == fence).map(|attempt| attempt.number.0)
    }

    /// A worker by the name that it had with its attempts.
    fn worker(&self, id: WorkerId) -> WorkerRef {
        let known = self.attempts.iter().find(|attempt| attempt.worker == id);
        known.map_or_else(|| WorkerRef { id: id.0, name: String::new() }, worker_of)
    }
}

/// Who has, or had, an attempt.
pub(super) fn worker_of(attempt: &AttemptRow) -> WorkerRef {
    WorkerRef { id: attempt.worker.0, name: attempt.worker_name.to_string() }
}

/// For how many milliseconds its container ran, once it has ended. Of a lost attempt nobody knows.
pub(super) fn ran_ms(attempt: &AttemptRow) -> Option<u64> {
    let ran = attempt.started_at.zip(attempt.ended_at).filter(|_| attempt.outcome != Some(Outcome::Lost));
    ran.map(|(from, to)| view::millis(to.since(from)))
}

fn attempt(row: &AttemptRow) -> view::Attempt {
    view::Attempt {
        number: row.number.0,
        fence: row.fence.0,
        worker: worker_of(row),
        assigned_at: Time(row.assigned_at),
        started_at: row.started_at.map(Time),
        ended_at: row.ended_at.map(Time),
        ran_ms: ran_ms(row),
        container: row.container.clone(),
        stopping: row.stopping.map(|cause| cause.name().into()),
        outcome: row.outcome.map(|outcome| outcome.name().into()),
        released: row.released.map(|cause| cause.name().into()),
        exit_code: row.exit_code,
        message: row.message.clone(),
        output: row
            .ended_at
            .map(|_| view::OutputBytes { stdout_bytes: row.output.stdout, stderr_bytes: row.output.stderr }),
    }
}

/// What an attempt itself went through.
fn lived(attempt: &AttemptRow) -> Vec<view::Event> {
    let of = |at, name, text| view::Event {
        attempt: Some(attempt.number.0),
        worker: Some(worker_of(attempt)),
        text,
        ..event(at, name)
    };
    let mut events = vec![of(attempt.assigned_at, "assigned", String::new())];
    events.extend(attempt.started_at.map(|at| of(at, "started", shown_container(&attempt.container))));
    let ended = attempt.ended_at.zip(attempt.outcome);
    events.extend(ended.map(|(at, outcome)| of(at, "attempt_ended", ending(attempt, outcome))));
    events
}

/// How an attempt ended: the outcome, and what its worker said about it.
fn ending(attempt: &AttemptRow, outcome: Outcome) -> String {
    let message = match attempt.released {
        Some(cause) if attempt.message.is_empty() => cause.words(),
        _ => attempt.message.as_str(),
    };
    in_words(outcome, message, attempt.exit_code)
}

/// An outcome, how it came to that, and the program's exit code if nothing else tells it.
pub(super) fn in_words(outcome: Outcome, cause: &str, exit_code: Option<i32>) -> String {
    let name = match outcome {
        Outcome::Released => "given back".to_owned(),
        _ => outcome.name().replace('_', " "),
    };
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

/// Docker's 64 digits, as short as Docker shows them.
fn shown_container(container: &str) -> String {
    let is_docker = container.len() == 64 && container.bytes().all(|byte| byte.is_ascii_hexdigit());
    match container {
        "" => String::new(),
        _ if is_docker => format!("as container {}", &container[..12]),
        _ => format!("as {container}"),
    }
}

fn event(at: Timestamp, name: &'static str) -> view::Event {
    view::Event { at: Time(at), event: name.into(), ..view::Event::default() }
}

const fn is_asked_for(note: &Note) -> bool {
    matches!(note, Note::CancelRequested { .. } | Note::Freed { .. })
}

const fn is_lost_by_the_platform(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed)
}
