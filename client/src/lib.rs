//! The worker's body.

pub mod logs;
pub mod runtime;
