//! The server's decisions as a pure state machine: placement, retries, leases, reconciliation.
//!
//! [`Scheduler::step`] takes the time and an input, and returns the changes to commit ([`step::Change`]) and
//! the effects to perform after that ([`step::Effect`]). The caller must
//!
//! 1. commit the changes of a group of steps atomically, under the epoch of this scheduler;
//! 2. perform their effects after the commit, in order, after those of all earlier groups;
//! 3. set the number of the next group by [`Scheduler::begin`] before it asks [`Scheduler::wake_at`];
//! 4. step [`input::Input::Tick`] by that time: within [`TICK_WITHIN`] and a sixth of the lease. After twice
//!    that time without a step the server counts as suspended, and all leases are renewed.
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
//!     store.commit(&group);     // nothing is sent before this returns
//!     perform(group.effects);
//! }
//! ```
//!
//! If a commit is *unavailable*, the caller tries the same changes again. If it is *fenced*, another server
//! has taken over and this scheduler is dropped. If it is *refused*, the scheduler had a bug and a new one is
//! made from the store. *Changes survive, effects may be lost*: a reconnect and a tick derive each effect
//! again from state.
//!
//! Nothing here waits, reads a clock, draws from the system's randomness, or knows of bytes, JSON and SQL.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod audit;
pub mod batches;
mod commit_watch;
mod config;
mod core;
mod defaults;
pub mod definition;
pub mod definitions;
pub mod dependencies;
pub mod details;
mod dispatch;
pub mod expectations;
pub mod explain;
pub mod fleet;
mod handlers;
pub mod hooks;
pub mod ids;
pub mod input;
pub mod job;
pub mod keys;
pub mod limits;
pub mod new_jobs;
pub mod origin;
pub mod params;
pub mod pauses;
pub mod pending_batch;
pub mod placement;
pub mod queue;
mod reconcile;
pub mod reservation;
pub mod restore;
pub mod results;
pub mod retry;
pub mod run_on;
pub mod schedule;
mod schedule_cursors;
pub mod schedules;
mod shared_text;
pub mod snapshot;
mod state;
pub mod step;
pub mod table;
pub mod timers;
pub mod unique;

pub use crate::core::Scheduler;
pub use config::{Config, Counters, ServerLimits};
pub use queue::PriorityAgeing;

/// Maximum time between two steps, whatever the timers say; less with a short lease ([`Scheduler::wake_at`]).
/// It tells a suspension of the server from silence of its workers, and limits the harm of a clock that
/// jumped.
pub const TICK_WITHIN: ::core::time::Duration = ::core::time::Duration::from_secs(5);
