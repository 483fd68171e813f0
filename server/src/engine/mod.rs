//! The one task that owns the scheduler: stamp, step, commit, perform.

mod handle;

pub use handle::{Busy, Command, Handle};
