//! JSON of errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Text;

/// A problem document (RFC 9457).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The address of the page that explains the code, on this server.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title of the code.
    #[schema(value_type = String)]
    pub title: Text,
    /// The HTTP status.
    pub status: u16,
    /// Stable code for programs.
    #[schema(value_type = String)]
    pub code: Text,
    /// The fault of this request, as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The part of the request that is wrong: `timeout`, `environment.HOME`, `jobs[3].priority`, `?limit`, or a header's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Advice on how to fix the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For an unknown name: similar names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// For a conflict with a job: its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<Text>,
    /// For a duplicate: the job that has the unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// For a duplicate of a batch: the batch that has the unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// For events that are gone: the id after which to go on, once the lists were read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_id: Option<String>,
    /// For a body with more than one fault: all of them, the first one included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// The request id, also in the server's log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// One fault of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Stable code for programs.
    #[schema(value_type = String)]
    pub code: Text,
    /// The part of the request that is wrong.
    pub field: String,
    /// The fault as a sentence.
    pub detail: String,
    /// Advice on how to fix the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
