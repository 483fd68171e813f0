//! The timeline of a job: its attempts and the events between acceptance and end.
//!
//! It is made from committed rows only, so that it does not change later. `show` tells the present wait.

use protocol::report::Outcome;
use protocol::{Fence, Timestamp, Token, WorkerId};
use scheduler::hooks::HookResult;
use scheduler::job::State;
use scheduler::step::Note;

use crate::http::present::members;
use crate::http::present::shapes::{self, Time, WorkerRef};
use crate::store::{AttemptRow, HookRecord, JobRow};

/// The stored history of a job.
pub(crate) struct Timeline<'r> {
    pub(crate) row: &'r JobRow,
    /// The attempts, oldest first.
    pub(crate) attempts: &'r [AttemptRow],
    /// The notes with their times, oldest first.
    pub(crate) notes: &'r [(Timestamp, Note)],
    /// Its hooks that were decided.
    pub(crate) hooks: &'r [HookRecord],
}

impl Timeline<'_> {
    /// Every attempt, oldest first.
    pub(crate) fn attempts(&self) -> Vec<shapes::Attempt> {
        self.attempts.iter().map(attempt).collect()
    }

    /// The timeline, oldest first.
    pub(crate) fn events(&self) -> Vec<shapes::Event> {
        let (asked, told) = self.notes.iter().partition(|(_, note)| is_asked_for(note));
        let mut events = vec![self.accepted()];
        let first_start = members::started_at(self.row);
        events.extend(
            first_start.map(|at| shapes::Event { text: "its first member".into(), ..event(at, "started") }),
        );
        // Requests come before their consequences within one millisecond.
        events.extend(self.told(asked));
        events.extend(self.attempts.iter().flat_map(attempt_events));
        events.extend(self.told(told));
        events.extend(self.hooks.iter().map(hook_event));
        events.sort_by_key(|event| event.at);
        events.extend(self.quarantine_event());
        let Some(at) = self.row.ended_at else { return events };
        // The end of the job comes last, even if a clock was set back; only late worker reports follow it.
        let is_later = |event: &shapes::Event| match &*event.event {
            "cancel_confirmed" => true,
            "late_report" | "container_gone" => event.at > Time(at),
            // A hook follows its event.
            "hook_made" | "hook_left_out" => event.at >= Time(at),
            _ => false,
        };
        let (later, mut events): (Vec<_>, Vec<_>) = events.into_iter().partition(is_later);
        events.push(shapes::Event { text: self.row.reason.clone(), ..event(at, self.row.state.name()) });
        events.extend(later);
        events
    }

    /// True if a cancel was requested, but the job ended by another cause first (docs/design/failures.md, F20).
    pub(crate) fn is_cancelled_too_late(&self) -> bool {
        let is_wanted = |(_, note): &(Timestamp, Note)| matches!(note, Note::CancelRequested { .. });
        let has_another_end = self.row.state.has_ended() && self.row.state != State::Cancelled;
        has_another_end && self.notes.iter().any(is_wanted)
    }

    /// Late reports, which were recorded and not believed, oldest first.
    pub(crate) fn late_reports(&self) -> Vec<shapes::LateReport> {
        let late = |(at, note): &(Timestamp, Note)| {
            let Note::LateReport { token, worker, said } = note else { return None };
            Some(shapes::LateReport {
                at: Time(*at),
                attempt: self.number_of(token.fence),
                fence: token.fence.0,
                worker: self.worker(*worker),
                said: said.clone(),
            })
        };
        self.notes.iter().filter_map(late).collect()
    }

    fn accepted(&self) -> shapes::Event {
        let text = self.row.retry_of.map(|job| format!("tries job {job} again"));
        shapes::Event { text: text.unwrap_or_default(), ..event(self.row.created_at, "accepted") }
    }

    fn told(&self, notes: Vec<&(Timestamp, Note)>) -> Vec<shapes::Event> {
        notes.into_iter().map(|(at, note)| self.note(*at, note)).collect()
    }

    fn note(&self, at: Timestamp, note: &Note) -> shapes::Event {
        let of = |fence, worker, event: shapes::Event| shapes::Event {
            attempt: self.number_of(fence),
            worker: Some(self.worker(worker)),
            ..event
        };
        let said = |name, text: String| shapes::Event { text, ..event(at, name) };
        match note {
            Note::CancelRequested { by } if self.is_cancelled_too_late() => {
                said("cancel_requested", format!("by {by}: too late, what ended it had come first"))
            }
            Note::CancelRequested { by } => said("cancel_requested", format!("by {by}")),
            Note::Released { by } => said("released", format!("by {by}")),
            Note::Updated { by, due_at, priority } => {
                said("updated", format!("by {by}: due {}, priority {priority}", Time(*due_at)))
            }
            Note::ResultLeftOut { why } => said("result_left_out", why.clone()),
            Note::WorkersLeftOut { workers } => said("workers_left_out", format!("no member for {workers}")),
            Note::ContainerGone { token, worker } => {
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

    /// True if this attempt was the last one without which the cancel could not be confirmed.
    fn is_confirmed_by(&self, token: Token) -> bool {
        let told = |(at, note): &&(Timestamp, Note)| {
            matches!(note, Note::ContainerGone { .. }) && self.row.ended_at.is_some_and(|end| *at >= end)
        };
        let last = self
            .notes
            .iter()
            .rfind(told)
            .filter(|_| self.row.state == State::Cancelled && self.row.confirmed);
        last.is_some_and(|(_, note)| matches!(note, Note::ContainerGone { token: of, .. } if *of == token))
    }

    /// The event of a quarantine under way. After a release, the release is shown instead.
    fn quarantine_event(&self) -> Option<shapes::Event> {
        let last = self.attempts.last().filter(|_| self.row.state == State::Quarantined)?;
        let at = last.ended_at?;
        let lost = self.attempts.iter().filter(|it| it.outcome.is_some_and(is_lost_by_the_platform)).count();
        let times = if lost == 1 { "once".to_owned() } else { format!("{lost} times") };
        let text =
            format!("the platform failed it {times}: it is held until somebody releases or cancels it");
        Some(shapes::Event { text, ..event(at, "quarantined") })
    }

    fn number_of(&self, fence: Fence) -> Option<u32> {
        self.attempts.iter().find(|attempt| attempt.fence == fence).map(|attempt| attempt.number.0)
    }

    /// A worker by the name that it had in the attempts.
    fn worker(&self, id: WorkerId) -> WorkerRef {
        let known = self.attempts.iter().find(|attempt| attempt.worker == id);
        known.map_or_else(|| WorkerRef { id: id.0, name: String::new() }, worker_of)
    }
}

/// The worker of an attempt.
pub(crate) fn worker_of(attempt: &AttemptRow) -> WorkerRef {
    WorkerRef { id: attempt.worker.0, name: attempt.worker_name.to_string() }
}

/// Milliseconds between start and end of its container. Unknown for a lost attempt.
pub(crate) fn ran_ms(attempt: &AttemptRow) -> Option<u64> {
    let ran = attempt.started_at.zip(attempt.ended_at).filter(|_| attempt.outcome != Some(Outcome::Lost));
    ran.map(|(from, to)| shapes::millis(to.since(from)))
}

fn attempt(row: &AttemptRow) -> shapes::Attempt {
    shapes::Attempt {
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
        output: row.ended_at.map(|_| shapes::OutputBytes {
            stdout_bytes: row.output.stdout,
            stderr_bytes: row.output.stderr,
            cut: None,
        }),
        usage: shapes::Usage::of(&row.usage),
    }
}

/// The events of one attempt.
fn attempt_events(attempt: &AttemptRow) -> Vec<shapes::Event> {
    let of = |at, name, text| shapes::Event {
        attempt: Some(attempt.number.0),
        worker: Some(worker_of(attempt)),
        text,
        ..event(at, name)
    };
    let mut events = vec![of(attempt.assigned_at, "assigned", String::new())];
    events.extend(attempt.started_at.map(|at| of(at, "started", short_container_id(&attempt.container))));
    let ended = attempt.ended_at.zip(attempt.outcome);
    events.extend(ended.map(|(at, outcome)| of(at, "attempt_ended", attempt_end_text(attempt, outcome))));
    events
}

/// The end of an attempt: the outcome, and the worker's message.
pub(crate) fn attempt_end_text(attempt: &AttemptRow, outcome: Outcome) -> String {
    let message = match attempt.released {
        Some(cause) if attempt.message.is_empty() => cause.words(),
        _ => attempt.message.as_str(),
    };
    in_words(outcome, message, attempt.exit_code)
}

/// An outcome with its cause and, if the cause does not contain it, the exit code.
pub(crate) fn in_words(outcome: Outcome, cause: &str, exit_code: Option<i32>) -> String {
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

fn hook_event(hook: &HookRecord) -> shapes::Event {
    let HookRecord { row, .. } = hook;
    let (event_name, target) = (row.event.name(), &row.target);
    let (name, text) = match row.result {
        HookResult::Made { job, .. } => ("hook_made", format!("{event_name}: {target} is job {job}")),
        HookResult::LeftOut(refusal) => {
            ("hook_left_out", format!("{event_name}: {target} was left out, {}", refusal.words()))
        }
    };
    shapes::Event { text, ..event(row.at, name) }
}

/// The first 12 of Docker's 64 digits, as Docker shows them.
fn short_container_id(container: &str) -> String {
    let is_docker = container.len() == 64 && container.bytes().all(|byte| byte.is_ascii_hexdigit());
    match container {
        "" => String::new(),
        _ if is_docker => format!("as container {}", &container[..12]),
        _ => format!("as {container}"),
    }
}

fn event(at: Timestamp, name: &'static str) -> shapes::Event {
    shapes::Event { at: Time(at), event: name.into(), ..shapes::Event::default() }
}

const fn is_asked_for(note: &Note) -> bool {
    matches!(note, Note::CancelRequested { .. } | Note::Released { .. } | Note::Updated { .. })
}

const fn is_lost_by_the_platform(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed)
}
