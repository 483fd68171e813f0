//! The endpoints: one resource per file.
//!
//! A handler parses with `request`, asks the engine or the archive, and answers with the shapes of `present`. It decides nothing.

pub(crate) mod acknowledge;
pub(crate) mod admission;
pub(crate) mod audit;
pub(crate) mod backfill;
pub(crate) mod batches;
pub(crate) mod bulk;
pub(crate) mod definition_changes;
pub(crate) mod definitions;
pub(crate) mod deploy;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod job_export;
pub(crate) mod job_list;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod logs;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod notifications;
pub(crate) mod pauses;
pub(crate) mod pipelines;
pub(crate) mod plan;
pub(crate) mod reload;
pub(crate) mod repeat;
pub(crate) mod schedule_choice;
pub(crate) mod schedules;
pub(crate) mod statistics;
pub(crate) mod submission_answer;
pub(crate) mod submit;
pub(crate) mod tokens;
pub(crate) mod usage;
pub(crate) mod whoami;
mod worker_names;
pub(crate) mod workers;
