//! JSON of acknowledgements.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;
use super::intervention::why;
use crate::store;

/// An acknowledgement of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Acknowledgement {
    /// The time of the acknowledgement.
    pub at: Time,
    /// The name of the token, or `proxy:NAME` for a user whom a proxy has signed in; absent on a server that needs no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Acknowledgement {
    /// The JSON of an acknowledgement.
    #[must_use]
    pub fn of(stored: &store::Acknowledgement) -> Self {
        Self { at: Time(stored.at), by: stored.by.clone(), reason: stored.reason.clone() }
    }

    /// In words: `2026-11-20T13:09:01.177Z by anna: disk swap`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}{}", self.at, why(self.by.as_deref(), self.reason.as_deref()))
    }
}
