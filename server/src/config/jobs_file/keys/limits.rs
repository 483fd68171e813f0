//! The keys about limits.

use scheduler::limits::rules::{OnDuplicate, OnFull};

use super::{Key, Range, Shape, key, names, range};

pub(in crate::config::jobs_file) const PERMITS: Range = range(1, 1_000_000);
pub(in crate::config::jobs_file) const STARTS: Range = range(1, 1_000_000);
pub(in crate::config::jobs_file) const QUEUED: Range = range(1, 100_000_000);

/// The keys of `concurrency`; the first one is what a bare number means.
pub(in crate::config::jobs_file) const CONCURRENCY: &[Key] = &[
    key("limit", Shape::Integer(PERMITS), "How many jobs may run at once."),
    key(
        "key",
        Shape::Text,
        "labels.NAME or params.NAME counts the jobs of each value of that label or parameter by themselves.",
    ),
    key("group", Shape::Text, "Counts the jobs of all definitions of this group together."),
    key(
        "on_full",
        Shape::Choice(|| names(&OnFull::ALL)),
        "What becomes of a new job while no permit is left; queue if absent.",
    ),
];

/// An end that frees a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config::jobs_file) enum ClearedEnd {
    /// The job succeeded.
    Success,
    /// The job failed, was lost, or expired.
    Failed,
}

pub(in crate::config::jobs_file) const CLEAR: [(&str, ClearedEnd); 2] =
    [("success", ClearedEnd::Success), ("failed", ClearedEnd::Failed)];

/// The keys of `unique`.
pub(in crate::config::jobs_file) const UNIQUE: &[Key] = &[
    key("key", Shape::Text, "params.NAME, labels.NAME, or a constant; what the request overrides if absent."),
    key(
        "on_duplicate",
        Shape::Choice(|| names(&OnDuplicate::ALL)),
        "What becomes of a job whose key is taken; return if absent.",
    ),
    key(
        "clear",
        Shape::Choices(|| names(&CLEAR)),
        "Ends that free the key; both if absent. A cancel always frees it.",
    ),
];

/// The keys of `rate_limit`.
pub(in crate::config::jobs_file) const RATE_LIMIT: &[Key] = &[
    key("limit", Shape::Integer(STARTS), "How many jobs may start within `per`."),
    key("per", Shape::Duration, "The time that limit counts for; 1s if absent."),
    key("burst", Shape::Integer(STARTS), "How many may start at once after a quiet time; 1 if absent."),
    key(
        "key",
        Shape::Text,
        "labels.NAME or params.NAME counts the jobs of each value of that label or parameter by themselves.",
    ),
];
