//! Tests of the real program with real signals, sockets and files, for processes that crash, stop, hang or send invalid data.
//!
//! The tests check the public API, the database, and files that jobs write outside of Longshore.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod batch_cancel;
mod cloned_identity;
mod cut_output;
mod deploy;
mod descriptors;
mod disk;
mod docker_away;
mod docker_broken;
mod doctor;
mod fenced;
mod first_start;
mod follow;
mod health;
mod jobs_directory;
mod large_batch;
mod lost_worker_container;
mod memory;
mod operators;
mod outcome_texts;
mod peers;
mod pulling;
mod refused_workers;
mod reload;
mod restored;
mod shutdown;
mod store_refusals;
mod support;
mod tokens;
mod worker_disk;
mod worker_kill;
