//! JSON of pauses.

use protocol::Timestamp;
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
    /// Since when; absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

impl Pause {
    /// The JSON of a pause.
    #[must_use]
    pub fn of(target: &PauseTarget, since: Option<Timestamp>) -> Self {
        let (of, name, schedule) = match target {
            PauseTarget::Server => ("server", None, None),
            PauseTarget::Schedules => ("schedules", None, None),
            PauseTarget::Group(name) => ("group", Some(name), None),
            PauseTarget::Definition(name) => ("definition", Some(name), None),
            PauseTarget::Schedule(name, id) => ("schedule", Some(name), Some(id)),
        };
        Self {
            of: of.into(),
            name: name.map(ToString::to_string),
            schedule: schedule.map(ToString::to_string),
            since: since.map(Time),
        }
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
