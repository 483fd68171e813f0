//! The server's brain: a pure state machine that decides which job runs where, what is retried, and what is believed.
//!
//! [`Scheduler::step`] takes the time and something that happened, and returns what must become durable ([`step::Change`]) and what
//! must then be done ([`step::Effect`]). The caller must
//!
//! 1. commit the changes of a group of steps atomically, under the epoch that the scheduler was made with;
//! 2. only then perform their effects, in order, after those of all earlier groups;
//! 3. say which group it gathers for, by [`Scheduler::begin`], before it asks [`Scheduler::wake_at`];
//! 4. step [`input::Input::Tick`] by then at the latest, which is within [`TICK_WITHIN`] of any other step, and within a sixth of the lease:
//!    whoever lets twice as long pass was away, and all leases count as renewed.
//!
//! ```text
//! loop {
//!     scheduler.begin(group.number);
//!     let inputs = inbox.take_all_or_wait_until(scheduler.wake_at());
//!     for input in inputs {
//!         let step = scheduler.step(clock.now(), input);
//!         group.changes.extend(step.changes);
//!         group.effects.extend(step.effects);
//!     }
//!     store.commit(&group);     // until this returns nothing is said to anyone
//!     perform(group.effects);
//! }
//! ```
//!
//! If a commit is *unavailable* the same changes are tried again, in silence. If it is *fenced* another epoch owns the truth and this
//! scheduler is dropped. If it is *refused* we were wrong: a new one is made from the store. *Changes survive, effects may be lost*:
//! each effect can be derived again from state, and a reconnect and a tick do so.
//!
//! Nothing here waits, reads a clock, draws from the system's randomness, or knows of bytes, JSON and SQL.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod audit;
pub mod claims;
mod config;
pub mod definition;
pub mod definitions;
pub mod exclusion;
pub mod explain;
pub mod fleet;
pub mod forming;
pub mod input;
pub mod job;
pub mod keys;
mod on;
mod place;
pub mod ready;
mod recall;
pub mod restore;
pub mod retry;
mod scheduler;
pub mod snapshot;
pub mod step;
pub mod table;
pub mod timers;

pub use config::{Config, Counters};
pub use scheduler::Scheduler;

/// How long a body may let pass between two steps, whatever the timers say: with a short lease even less, as [`Scheduler::wake_at`] says. So a freeze of its process is told from silence of its workers,
/// and the harm of a clock that jumped is bounded.
pub const TICK_WITHIN: core::time::Duration = core::time::Duration::from_secs(5);
