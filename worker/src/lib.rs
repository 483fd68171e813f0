//! The worker's brain: a pure state machine that decides what a machine does with the attempts it was given.
//!
//! What lives here: the local queue, the slots, the kill ladder, the lease and its start gate, the reports that the server has not yet
//! acknowledged, and how an end is classed. What deliberately does not: clocks, sockets, containers, output bytes.
//!
//! The body drives it with three calls:
//! ```text
//! loop {
//!     for input in everything_that_has_piled_up() {
//!         perform(worker.step(now(), input).effects);   // starts, stops and removals: as early as possible
//!     }
//!     perform(worker.flush(now()).effects);             // what there is to say, packed: once per batch
//!     wait_for_an_input_or(worker.wake_at());           // then step Input::Tick
//! }
//! ```
//! Effects may be lost with the process: containers and attempt directories are the ledger, and [`Input::Restored`] brings them back.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attempt;
mod audit;
mod backlog;
mod classify;
mod definitions;
pub mod input;
mod link;
mod on;
mod outbox;
mod say;
mod slots;
pub mod step;
mod worker;

pub use input::Input;
pub use step::{Effect, Step};
pub use worker::{Config, Worker};
