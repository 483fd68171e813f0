//! The worker's decisions as a pure state machine: which attempts a machine starts, stops and reports.
//!
//! In this crate: the local queue, slots, stop steps, the lease and its start gate, unacknowledged reports,
//! and the classification of exits. Elsewhere: clocks, sockets, containers and output.
//!
//! The client drives it with three calls:
//! ```text
//! loop {
//!     for input in everything_that_has_piled_up() {
//!         perform(worker.step(now(), input).effects);   // starts, stops and removals: as early as possible
//!     }
//!     perform(worker.flush(now()).effects);             // messages, packed: once per batch
//!     wait_for_an_input_or(worker.wake_at());           // then step Input::Tick
//! }
//! ```
//! Effects may be lost with the process. Containers and attempt directories are the record, and
//! [`Input::Restored`] brings them back.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attempt;
mod audit;
mod backlog;
mod classify;
mod core;
mod definitions;
mod dispatch;
mod end_facts;
mod flush;
mod handlers;
pub mod image_gc;
pub mod input;
mod launch;
mod outbox;
mod policy;
mod pulls;
mod session;
mod slots;
pub mod step;
mod unsent_output;

pub use crate::core::{Config, Worker};
pub use input::Input;
pub use policy::Policy;
pub use step::{Effect, Step};
