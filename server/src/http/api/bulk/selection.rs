//! The body of a bulk request.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::http::middleware::problem::Problem;
use crate::http::request::body;

/// The body of a bulk request; with filters in the query it has no numbers.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// The numbers of the jobs, at most 10,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<u64>, required = false)]
    pub(super) ids: Option<Vec<u64>>,
}

/// The body of a bulk acknowledgement.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcknowledgedSelection {
    /// The numbers of the jobs, at most 10,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<u64>, required = false)]
    pub(super) ids: Option<Vec<u64>>,
    /// Why they are dealt with, for people: 1 to 300 characters in one line. Not with `undo`.
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// A list that is there: `null` is refused, since it comes from a list that a client meant to send.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

impl Selection {
    /// Reads a body, which may be missing. One that cannot be read is refused also beside filters: it may hold what the client meant.
    pub(super) fn read(text: &[u8]) -> Result<Self, Problem> {
        read(text)
    }
}

impl AcknowledgedSelection {
    /// As [`Selection::read`].
    pub(super) fn read(text: &[u8]) -> Result<Self, Problem> {
        read(text)
    }
}

impl From<Selection> for AcknowledgedSelection {
    fn from(Selection { ids }: Selection) -> Self {
        Self { ids, reason: None }
    }
}

fn read<T: Default + DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    if text.trim_ascii().is_empty() { Ok(T::default()) } else { body::parse(text) }
}
