//! Chaos tests: real servers and workers under real faults, compared with what the jobs really did.
//!
//! A [`round`] starts a server and workers ([`system`]), puts them under [`load`], injects [`fault`]s, and records the clients' answers
//! ([`history`]), the jobs' own [`marks`] and the database ([`store`]). [`check`] compares the three records. It knows the promises of
//! Longshore and none of its code.
//!
//! This crate is a test in the form of a program: it panics where something cannot be set up.
#![expect(clippy::unwrap_used, reason = "a run that cannot be set up fails with a panic")]

pub mod check;
pub mod disk;
pub mod engine;
pub mod fault;
pub mod history;
pub mod link;
pub mod load;
pub mod marks;
pub mod plans;
pub mod round;
pub mod stats;
pub mod store;
pub mod system;
