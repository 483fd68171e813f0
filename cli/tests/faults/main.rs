//! What must hold when processes die, leave, lie or hang: the real program, with real signals, sockets and files.
//!
//! Nothing here looks inside: what counts is what the public interface says, what lies in the database afterwards, and what jobs wrote
//! to files that Longshore knows nothing of.
#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

mod copies;
mod disk;
mod docker_away;
mod docker_broken;
mod doctor;
mod fenced;
mod follow;
mod foreign;
mod health;
mod hellos;
mod large_batch;
mod leaving;
mod memory;
mod newcomer;
mod operators;
mod peers;
mod pulling;
mod refused;
mod restored;
mod support;
mod tokens;
mod told;
mod worker_disk;
mod worker_kill;
