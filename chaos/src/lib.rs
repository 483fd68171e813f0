//! Faults for the real program, and the truth about what came of them.
//!
//! [`stage`] is where the program is put to a test: processes in a directory of their own, with what is needed to ask and to wait.
//! The tests of the command line stand on it too. Everything else is the harness: a [`round`] puts a server and workers under [`load`],
//! lets [`fault`]s strike them, and writes down what clients were told ([`history`]), what jobs themselves have witnessed ([`truth`])
//! and what the database holds in the end ([`store`]). [`check`] compares the three and nothing else: it knows nothing of how Longshore
//! works inside, only of what it promises.
//!
//! This crate is a test that happens to be a program: where the stage itself cannot be set, it panics as a test would.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set ends the run, loudly")]

pub mod check;
pub mod disk;
pub mod engine;
pub mod fault;
pub mod figures;
pub mod form;
pub mod history;
pub mod link;
pub mod load;
pub mod round;
pub mod stage;
pub mod store;
pub mod truth;
pub mod world;
