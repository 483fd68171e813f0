//! Errors.

use serde::{Deserialize, Serialize};

use super::Word;

/// An error, by RFC 9457.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The address of the page that explains the code, on this server.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: Word,
    /// The HTTP status.
    pub status: u16,
    /// For programs: stable.
    pub code: Word,
    /// For people: what is wrong with this very request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Which part of the request: `timeout`, `environment.HOME`, `jobs[3].priority`, `?limit`, a header's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For an unknown name: names that are near.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// For a conflict with a job: its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Word>,
    /// For a body with more than one fault: all of them, the first one included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// Joins this answer with the server's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// One fault of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// For programs: stable.
    pub code: Word,
    /// Which part of the request.
    pub field: String,
    /// For people.
    pub detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
