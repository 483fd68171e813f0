//! The fields of an object in a request, by its place.

use std::ops::Range;

/// The place of an object in a request, which decides on its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http::request::job_request) enum EntryKind {
    /// One job of a definition that the path names.
    Job,
    /// One or several jobs of a definition that the path names.
    Submission,
    /// An entry of a list of jobs, each with the name of its definition.
    Member,
}

impl EntryKind {
    /// The indices of its fields in [`FIELDS`].
    pub(super) const fn fields(self) -> Range<usize> {
        match self {
            Self::Job => 2..15,
            Self::Submission => 2..FIELDS.len(),
            Self::Member => 0..15,
        }
    }
}

/// All fields, in an order in which those of each [`EntryKind`] stand together.
pub(super) const FIELDS: [&str; 22] = [
    "as",
    "name",
    "params",
    "environment",
    "args",
    "input",
    "priority",
    "timeout",
    "run_at",
    "delay",
    "labels",
    "unique_key",
    "after",
    "workers",
    "requires",
    "count",
    "each",
    "batch_name",
    "max_failures",
    "concurrency",
    "batch_unique_key",
    "on_duplicate",
];
