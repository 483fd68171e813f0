//! The server's brain: a pure state machine that decides which job runs where.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod definition;
pub mod input;
pub mod job;
pub mod restore;
pub mod step;
pub mod snapshot;
