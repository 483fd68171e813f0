//! JSON of pauses.

use scheduler::origin::Intervention;
use scheduler::pauses::{PauseChange, PauseTarget};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// The jobs and schedules that are paused together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// `server`: all jobs and schedules; `schedules`: all schedules and no jobs; `group`, `definition`: its jobs and schedules; `schedule`;
    /// `batch`: its members.
    #[schema(value_type = String)]
    pub of: Text,
    /// The name of the group or definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The number of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Since when, by the first command; absent in the event of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The time at which it ends by itself; absent: an operator ends it. In the event of an end, that its time has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The name of the token or user that paused it last; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result of a command to pause or resume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseResult {
    /// False if it was so already.
    pub changed: bool,
    /// The pause that is in force now; absent after a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// The pause that was in force before, which the command replaced, ended or left; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Pause>,
    /// After a resume: the pauses that still hold back all of its jobs or schedules, or some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Pause>,
}

impl Pause {
    /// The JSON of a pause.
    #[must_use]
    pub fn of(target: &PauseTarget, pause: &Intervention) -> Self {
        let super::Intervention { since, until, by, reason } = super::Intervention::of(pause);
        Self { since: Some(since), until, by, reason, ..Self::target(target) }
    }

    /// The JSON of a pause in the event of its beginning or its end.
    #[must_use]
    pub fn after(target: &PauseTarget, change: &PauseChange) -> Self {
        match change {
            PauseChange::Set(pause) => Self::of(target, pause),
            PauseChange::Resumed { .. } | PauseChange::BatchEnded => Self::target(target),
            PauseChange::Ended(at) => Self { until: Some(Time(*at)), ..Self::target(target) },
        }
    }

    fn target(target: &PauseTarget) -> Self {
        let (of, name, schedule) = match target {
            PauseTarget::Server => ("server", None, None),
            PauseTarget::Schedules => ("schedules", None, None),
            PauseTarget::Group(name) => ("group", Some(name), None),
            PauseTarget::Definition(name) => ("definition", Some(name), None),
            PauseTarget::Schedule(name, id) => ("schedule", Some(name), Some(id)),
            PauseTarget::Batch(_) => ("batch", None, None),
        };
        let batch = match target {
            PauseTarget::Batch(first) => Some(first.0),
            _ => None,
        };
        Self {
            batch,
            of: of.into(),
            name: name.map(ToString::to_string),
            schedule: schedule.map(ToString::to_string),
            ..Self::default()
        }
    }

    /// The end, the requester and the reason, as far as they are known: ` until 2026-11-20T15:00:00.000Z by anna: disk swap`.
    #[must_use]
    pub fn why(&self) -> String {
        match self.until {
            // The event of an end.
            Some(until) if self.since.is_none() => format!(": its pause was until {until}"),
            Some(until) => format!(" until {until}{}", self.origin()),
            None => self.origin(),
        }
    }

    /// As [`Self::why`], also of a pause without an end: ` without an end by anna`.
    #[must_use]
    pub fn end_and_why(&self) -> String {
        let end = if self.until.is_none() { " without an end" } else { "" };
        format!("{end}{}", self.why())
    }

    /// As a sentence about now, with at most this many characters of the reason.
    #[must_use]
    pub fn sentence(&self, reason_chars_max: usize) -> String {
        let short = |reason: &String| match reason.char_indices().nth(reason_chars_max) {
            Some((end, _)) => format!("{}…", &reason[..end]),
            None => reason.clone(),
        };
        let since = self.since.map(|since| format!(" since {since}")).unwrap_or_default();
        let are = if self.of == "schedules" { "are" } else { "is" };
        let shown = Self { reason: self.reason.as_ref().map(short), ..self.clone() };
        format!("{} {are} paused{since}{}", self.words(), shown.why())
    }

    /// The requester and the reason, as far as they are known: ` by anna: disk swap`.
    #[must_use]
    pub fn origin(&self) -> String {
        super::intervention::why(self.by.as_deref(), self.reason.as_deref())
    }

    /// The paused object in words.
    #[must_use]
    pub fn words(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        match (&*self.of, &self.schedule) {
            ("server", _) => "the whole server".to_owned(),
            ("schedules", _) => "all schedules".to_owned(),
            ("group", _) => format!("the group {name}"),
            ("batch", _) => format!("batch {}", self.batch.unwrap_or_default()),
            (_, Some(schedule)) => format!("the schedule {name}/{schedule}"),
            _ => format!("the definition {name}"),
        }
    }
}
