//! Hooks: definitions that get a job when a job of another definition starts or ends. `handlers::hook` makes these jobs.
//!
//! - A hook names definitions. Which revision runs is decided when the event happens: the one in jobs.yaml then.
//! - The row of a hook, its job, and the event itself are changes of the same step, so a crash leaves all of them or none.
//! - A hook whose job cannot be made is left out with a reason. The job that triggered it neither waits nor changes for it.

pub(crate) mod targets;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{AttemptNo, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::defaults::is_default;
use crate::results;
use crate::shared_text;
use crate::state::State;

/// Hooks may make hooks; a chain of them ends after this many. Loops within a jobs.yaml are refused when it is loaded, but jobs of older
/// revisions can still close one.
pub const DEPTH_MAX: u8 = 8;

/// The hooks of a definition: names of other definitions by event, each name once an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// For the first start of a job.
    #[serde(with = "shared_text::list", skip_serializing_if = "is_default")]
    pub on_start: Vec<Arc<str>>,
    /// For a job that ends as succeeded.
    #[serde(with = "shared_text::list", skip_serializing_if = "is_default")]
    pub on_success: Vec<Arc<str>>,
    /// For a job that ends as failed, lost or expired.
    #[serde(with = "shared_text::list", skip_serializing_if = "is_default")]
    pub on_failure: Vec<Arc<str>>,
    /// For a job that ends.
    #[serde(with = "shared_text::list", skip_serializing_if = "is_default")]
    pub on_end: Vec<Arc<str>>,
}

impl Hooks {
    /// The names for an event.
    #[must_use]
    pub fn of(&self, event: HookEvent) -> &[Arc<str>] {
        match event {
            HookEvent::Start => &self.on_start,
            HookEvent::Success => &self.on_success,
            HookEvent::Failure => &self.on_failure,
            HookEvent::End => &self.on_end,
        }
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        HookEvent::ALL.iter().all(|event| self.of(*event).is_empty())
    }
}

/// An event in the life of a job that a hook can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookEvent {
    /// Its first container has started.
    Start,
    /// It ended as succeeded.
    Success,
    /// It ended as failed, lost or expired.
    Failure,
    /// It ended.
    End,
}

impl HookEvent {
    /// All events, in the order in which they happen.
    pub const ALL: [Self; 4] = [Self::Start, Self::Success, Self::Failure, Self::End];

    /// Name in jobs.yaml, the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "on_start",
            Self::Success => "on_success",
            Self::Failure => "on_failure",
            Self::End => "on_end",
        }
    }

    /// The events of a job that ends in this state, besides [`Self::End`].
    #[must_use]
    pub const fn of_end(state: State) -> Option<Self> {
        match state {
            State::Succeeded => Some(Self::Success),
            State::Failed | State::Lost | State::Expired => Some(Self::Failure),
            State::Cancelled
            | State::Scheduled
            | State::Queued
            | State::Assigned
            | State::Running
            | State::Quarantined => None,
        }
    }
}

/// The result of one hook of one event; `parent`, `event` and `target` name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRow {
    /// The job that started or ended.
    pub parent: JobId,
    /// The event.
    pub event: HookEvent,
    /// Name of the definition that the hook is for.
    pub target: Arc<str>,
    /// Wall-clock time of the decision.
    pub at: Timestamp,
    /// The decision.
    pub result: HookResult,
}

/// The decision about a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookResult {
    /// A job was made.
    Made {
        /// The job of the hook.
        job: JobId,
        /// Its place in a chain of hooks: 1 for the hook of a job that is none itself.
        depth: u8,
    },
    /// No job was made.
    LeftOut(HookRefusal),
}

impl HookResult {
    /// The job that was made.
    #[must_use]
    pub const fn job(self) -> Option<JobId> {
        match self {
            Self::Made { job, .. } => Some(job),
            Self::LeftOut(_) => None,
        }
    }
}

/// Why a hook made no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookRefusal {
    /// Its definition is not in jobs.yaml any more.
    Removed,
    /// Its definition is disabled.
    Disabled,
    /// Its definition has come to need a parameter.
    MissingParam,
    /// The chain of hooks is [`DEPTH_MAX`] long already.
    TooDeep,
    /// Too many jobs wait, of its definition or of all (`max_queued`).
    QueueFull,
    /// No permit is left, and its definition refuses jobs then (`on_full: reject`).
    LimitFull,
    /// Another job has its unique key.
    Duplicate,
    /// The server has as many jobs that have not ended as it may have.
    TooManyJobs,
}

impl HookRefusal {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::Removed,
        Self::Disabled,
        Self::MissingParam,
        Self::TooDeep,
        Self::QueueFull,
        Self::LimitFull,
        Self::Duplicate,
        Self::TooManyJobs,
    ];

    /// Name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Disabled => "disabled",
            Self::MissingParam => "missing_param",
            Self::TooDeep => "too_deep",
            Self::QueueFull => "queue_full",
            Self::LimitFull => "limit_full",
            Self::Duplicate => "duplicate",
            Self::TooManyJobs => "too_many_jobs",
        }
    }

    /// For people: the reason after "left out: ".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Removed => "its definition is not in jobs.yaml any more",
            Self::Disabled => "its definition is disabled",
            Self::MissingParam => "its definition has a parameter without a default",
            Self::TooDeep => "its chain of hooks has its maximum length",
            Self::QueueFull => "too many jobs wait already (max_queued)",
            Self::Duplicate => "another job has its unique key",
            Self::LimitFull => "its limit has no permit left (on_full: reject)",
            Self::TooManyJobs => "the server has too many jobs that have not ended",
        }
    }
}

/// A hook whose event has happened in this step.
#[derive(Debug)]
pub(crate) struct PendingHook {
    pub(crate) event: HookEvent,
    pub(crate) target: Arc<str>,
    /// Depth of its job in the chain.
    pub(crate) depth: u8,
    pub(crate) triggered_by: Arc<TriggeringJob>,
}

/// The facts about a job that its hooks get as variables.
#[derive(Clone, Debug)]
pub(crate) struct TriggeringJob {
    pub(crate) job: JobId,
    pub(crate) name: String,
    pub(crate) state: State,
    /// Its last attempt; zero if it had none.
    pub(crate) attempt: AttemptNo,
    pub(crate) outcome: Option<&'static str>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// The JSON that it left when it succeeded.
    pub(crate) result: Option<String>,
}

impl TriggeringJob {
    /// The variables of a hook's job.
    pub(crate) fn environment(&self, event: HookEvent) -> Vec<(String, String)> {
        use alloc::string::ToString;
        let attempt = Some(self.attempt.0).filter(|number| *number > 0);
        let reason = Some(one_line(&self.reason)).filter(|reason| !reason.is_empty());
        let variables = [
            ("HOOK", Some(event.name().into())),
            ("JOB", Some(self.job.to_string())),
            ("NAME", Some(self.name.clone())),
            ("STATE", Some(self.state.name().into())),
            ("ATTEMPT", attempt.map(|number| number.to_string())),
            ("OUTCOME", self.outcome.map(Into::into)),
            ("EXIT_CODE", self.exit_code.map(|code| code.to_string())),
            ("REASON", reason),
            ("STARTED_AT", self.started_at.map(instant)),
            ("ENDED_AT", self.ended_at.map(instant)),
            ("RESULT", self.result.as_deref().and_then(results::in_one_line)),
        ];
        let named = |(name, value): (&str, Option<String>)| Some((alloc::format!("{PREFIX}{name}"), value?));
        variables.into_iter().filter_map(named).collect()
    }
}

/// The number of the triggering job, for the container of a hook's job.
pub const PARENT_VARIABLE: &str = "LONGSHORE_PARENT_JOB";

/// Prefix of the variables with the facts of the triggering job.
const PREFIX: &str = "LONGSHORE_PARENT_";

/// Bytes of a reason in a variable.
const REASON_BYTES_MAX: usize = 1_024;

fn instant(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    alloc::format!("{at:.3}")
}

/// A variable holds one line. The text comes from a worker, so it may hold anything.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    let end = (0..=REASON_BYTES_MAX.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or_default());
    line.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_becomes_one_short_line() {
        assert_eq!(one_line("out of\nmemory\r\n"), "out of memory");
        let long = one_line(&"é".repeat(REASON_BYTES_MAX));
        assert_eq!(long.len(), REASON_BYTES_MAX);
        assert_eq!(one_line(&alloc::format!("x{long}")).len(), REASON_BYTES_MAX - 1, "no half character");
    }

    #[test]
    fn unknown_facts_have_no_variable() {
        let triggered_by = TriggeringJob {
            job: JobId(7),
            name: "report".into(),
            state: State::Cancelled,
            attempt: AttemptNo(0),
            outcome: None,
            exit_code: None,
            reason: String::new(),
            started_at: None,
            ended_at: Some(Timestamp(1_500)),
            result: None,
        };
        let names: Vec<String> =
            triggered_by.environment(HookEvent::End).into_iter().map(|(name, _)| name).collect();
        let expected =
            ["HOOK", "JOB", "NAME", "STATE", "ENDED_AT"].map(|name| alloc::format!("{PREFIX}{name}"));
        assert_eq!(names, expected);
    }
}
