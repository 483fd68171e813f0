//! JSON of the origin of a cordon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// A command of an operator that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Intervention {
    /// The time of the command.
    pub since: Time,
    /// The time at which it ends by itself; absent: an operator ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The name of the token or user; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Intervention {
    /// The JSON of an intervention.
    #[must_use]
    pub fn of(it: &scheduler::origin::Intervention) -> Self {
        let by = Some(it.origin.by.to_string()).filter(|by| !by.is_empty());
        let until = it.until.map(Time);
        Self { since: Time(it.since), until, by, reason: it.origin.reason.as_deref().map(str::to_owned) }
    }

    /// In words: `since 2026-11-20T13:09:01.177Z until 2026-11-20T18:30:00.000Z by anna: disk swap`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("since {}{}", self.since, self.why())
    }

    /// The end, the requester and the reason, as far as they are known: ` until 2026-11-20T18:30:00.000Z by anna: disk swap`.
    #[must_use]
    pub fn why(&self) -> String {
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        format!("{until}{}", self.origin())
    }

    /// The requester and the reason, as far as they are known: ` by anna: disk swap`.
    #[must_use]
    pub fn origin(&self) -> String {
        why(self.by.as_deref(), self.reason.as_deref())
    }
}

/// A requester and a reason as the end of a sentence: ` by anna: disk swap`.
pub(super) fn why(by: Option<&str>, reason: Option<&str>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{by}{reason}")
}
