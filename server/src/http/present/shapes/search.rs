//! JSON of a search over output.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};

/// A part of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputSearch {
    /// The lines that fit: newest job first, within a job by attempt, then standard output before standard error.
    pub lines: Vec<OutputLine>,
    /// Bytes of output that this request searched.
    pub scanned_bytes: u64,
    /// Jobs that this request looked at to their end.
    pub scanned_jobs: u64,
    /// Jobs of which this request searched output that was cut at `log.max_bytes`: lines of them are not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_jobs: Vec<u64>,
    /// At most this many jobs are left.
    pub jobs_left_at_most: u64,
    /// True if everything was searched.
    pub complete: bool,
    /// The `cursor` that continues the search; absent when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A line of output that fits a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputLine {
    /// The job.
    pub job: u64,
    /// Its definition.
    pub name: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// `stdout` or `stderr`.
    #[schema(value_type = String)]
    pub stream: Text,
    /// Offset of the line in its stream, in bytes.
    pub offset: u64,
    /// The line without its line break; of a long one the part around the first match.
    pub text: String,
    /// The matches in `text`: begin and end, in bytes of its UTF-8 form.
    pub matches: Vec<[usize; 2]>,
    /// True if `text` is only a part of the line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// When the container of the attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}
