//! JSON of pauses.

use scheduler::origin::Intervention;
use scheduler::pauses::PauseTarget;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// The jobs and schedules that are paused together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// `server`: all jobs and schedules; `schedules`: all schedules and no jobs; `group`, `definition`: its jobs and schedules; `schedule`.
    #[schema(value_type = String)]
    pub of: Text,
    /// The name of the group or definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Since when; absent in the event of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The name of the token or user that paused it; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Pause {
    /// The JSON of a pause.
    #[must_use]
    pub fn of(target: &PauseTarget, pause: Option<&Intervention>) -> Self {
        let (of, name, schedule) = match target {
            PauseTarget::Server => ("server", None, None),
            PauseTarget::Schedules => ("schedules", None, None),
            PauseTarget::Group(name) => ("group", Some(name), None),
            PauseTarget::Definition(name) => ("definition", Some(name), None),
            PauseTarget::Schedule(name, id) => ("schedule", Some(name), Some(id)),
        };
        let paused = Self {
            of: of.into(),
            name: name.map(ToString::to_string),
            schedule: schedule.map(ToString::to_string),
            ..Self::default()
        };
        match pause.map(super::Intervention::of) {
            Some(super::Intervention { since, by, reason }) => {
                Self { since: Some(since), by, reason, ..paused }
            }
            None => paused,
        }
    }

    /// The requester and the reason, as far as they are known: ` by anna: disk swap`.
    #[must_use]
    pub fn why(&self) -> String {
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
            (_, Some(schedule)) => format!("the schedule {name}/{schedule}"),
            _ => format!("the definition {name}"),
        }
    }
}
