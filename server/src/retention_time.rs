//! The clock of retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use protocol::Timestamp;

/// The time that retention goes by, for tasks without a clock of their own.
#[derive(Clone, Debug)]
pub(crate) struct RetentionTime(Arc<AtomicI64>);

impl RetentionTime {
    pub(crate) fn unknown() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }

    pub(crate) fn set(&self, time: Timestamp) {
        self.0.store(time.0, Ordering::Relaxed);
    }

    /// The time that was set last; none before the first time.
    pub(crate) fn get(&self) -> Option<Timestamp> {
        Some(self.0.load(Ordering::Relaxed)).filter(|time| *time != i64::MIN).map(Timestamp)
    }
}
