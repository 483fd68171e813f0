//! Limits of the logs.

use std::time::Duration;

/// Limits of the logs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A segment is sealed when it has grown to this size, in bytes.
    pub segment_bytes: u64,
    /// Syncs are at least this far apart while there is much to write. The first chunk after a pause is synced at once.
    pub sync_interval: Duration,
    /// This many bytes may wait to be written; an append beyond them waits for room.
    pub waiting_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, sync_interval: Duration::from_millis(10), waiting_bytes: 16 << 20 }
    }
}

/// Positions within a segment have 32 bits; a batch may still go beyond this limit.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
