//! The worker's body.

pub mod attempt_dir;
pub mod clock;
pub mod logs;
pub mod runtime;
