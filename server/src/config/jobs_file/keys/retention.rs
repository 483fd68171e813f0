//! The keys of `retention`.

use std::time::Duration;

use super::{Key, Range, Shape, key, range};

/// The keys of `retention`.
pub(in crate::config::jobs_file) const RETENTION: &[Key] = &[
    key("keep", Shape::Integer(KEEP), "How many ended jobs are kept, the newest ones."),
    key("max_age", Shape::Duration, "How long an ended job is kept; the server's --keep-jobs at most."),
    key(
        "failed_max_age",
        Shape::Duration,
        "How long a job that failed, expired or was lost is kept, in place of keep and max_age.",
    ),
    key("output_max_age", Shape::Duration, "How long the output of an ended job is kept."),
];

/// How many ended jobs may be kept. The server keeps no more unless --keep-jobs-max says so.
pub(in crate::config::jobs_file) const KEEP: Range = range(1, 10_000_000);
/// A shorter time would remove jobs before anybody can look at them.
pub(in crate::config::jobs_file) const AGE_MIN: Duration = crate::config::retention::AGE_MIN;
/// The longest age of the server's flags.
pub(in crate::config::jobs_file) const AGE_MAX: Duration = crate::config::retention::AGE_MAX;
