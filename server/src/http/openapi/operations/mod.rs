//! Every operation of the API: parameters, bodies, answers and problems. This table is beside the routes, and a test compares both.
//!
//! Examples are read as the types that the handlers write. The fields of the types are described where the types are.

mod cluster;
mod examples;
mod jobs;
mod settings;
mod shared;

use super::operation::Operation;
use cluster::{others, output, workers};
use jobs::{batches, jobs, jobs_in_bulk};
use settings::{access, definitions, schedules, server};

/// The groups of operations, in the order in which they are shown.
pub(super) const TAGS: [(&str, &str); 10] = [
    ("jobs", "Make jobs, look at them, and change or end them."),
    ("batches", "Jobs that were made together."),
    ("output", "What jobs have written."),
    ("events", "What has changed, as a stream."),
    ("workers", "The machines that run jobs."),
    ("definitions", "The content of jobs.yaml, and its schedules."),
    ("limits", "Limits on jobs at once."),
    ("notifications", "Messages about jobs."),
    ("access", "Tokens and the audit log."),
    ("server", "The server itself."),
];

/// All operations, by their tags.
pub(super) fn all() -> Vec<Operation> {
    [
        jobs(),
        jobs_in_bulk(),
        batches(),
        output(),
        workers(),
        definitions(),
        schedules(),
        others(),
        access(),
        server(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
