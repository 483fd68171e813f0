//! Requests for several jobs of one definition, and which fields an object has by its place.

use std::ops::Range;

use scheduler::batches::BatchOptions;
use serde_json::Value;

use super::rules;

/// The part of a request that makes several jobs of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ArrayRequest {
    /// So many jobs that are all alike.
    pub(crate) count: Option<u32>,
    /// A job for each of these, whose parameters are laid over those of the request.
    pub(crate) each: Option<Vec<Vec<(String, Value)>>>,
    /// The name of the batch, and its limits.
    pub(crate) options: BatchOptions,
}

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
    /// The indices of its fields in [`rules::FIELDS`].
    pub(super) const fn fields(self) -> Range<usize> {
        match self {
            Self::Job => 2..13,
            Self::Submission => 2..rules::FIELDS.len(),
            Self::Member => 0..13,
        }
    }
}
