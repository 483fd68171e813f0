//! Shared support for tests and development programs: the CLI's tests, chaos, bench and xtask use it.
//!
//! It starts servers and workers of the real program on free ports, waits for conditions with deadlines, sends requests to the HTTP API,
//! and writes a fake `docker` program. A [`Cluster`] is one directory with a server, its workers and their logs.
//!
//! Most functions panic when something cannot be set up, as a test does. Functions that return a `Result` are for the programs (bench, xtask),
//! which report the error and clean up.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails with a panic")]

mod api;
pub mod browser;
mod cluster;
#[cfg(feature = "database")]
mod database;
pub mod docker;
pub mod http;
mod port;
mod process;
mod rng;
pub mod smtp;
mod tokens;
mod wait;

pub use api::{Api, ApiResponse};
pub use cluster::Cluster;
#[cfg(feature = "database")]
pub use database::Database;
pub use port::ReservedPort;
pub use process::{Process, ProcessSpec, has_argument, log_tail, processes_mentioning};
pub use rng::SeededRng;
pub use tokens::bearer;
pub use wait::{wait_at_most, wait_for, wait_until};
