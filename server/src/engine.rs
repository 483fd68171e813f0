//! The one task that owns the scheduler.
