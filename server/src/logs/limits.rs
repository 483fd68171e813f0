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
    /// The machine has not been started since these logs were open last, so all that was written then is here, synced or not, unless the
    /// disk has damaged it. See [`super::boot`].
    pub is_same_boot: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            sync_interval: Duration::from_millis(10),
            waiting_bytes: 16 << 20,
            is_same_boot: false,
        }
    }
}

/// Bytes that were written and not synced when the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    /// All of them are here: the machine has not been started since.
    Kept,
    /// They may be lost, a later one or an earlier one; this is the most that there were.
    AtMost(u64),
}

impl Unsynced {
    pub(super) const fn of(limits: &Limits) -> Self {
        match limits.is_same_boot {
            true => Self::Kept,
            false => Self::AtMost(limits.unsynced_bytes()),
        }
    }
}

impl Limits {
    /// The most bytes that are written and not synced: with the headers of the records, twice what may wait.
    pub(super) const fn unsynced_bytes(&self) -> u64 {
        2 * self.waiting_bytes as u64
    }
}

/// Positions within a segment have 32 bits; a batch may still go beyond this limit.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The default of `log.max_bytes`, in bytes.
pub const BYTES_MAX: u64 = 64 << 20;

/// The smallest `log.max_bytes`: head and tail of the output are kept, and less would keep neither usefully.
pub const BYTES_MAX_FROM: u64 = 64 << 10;

/// The largest `log.max_bytes`: the engine's log may grow to twice this size, and a worker that must read it again does so at some 12 MB/s.
pub const BYTES_MAX_TO: u64 = 512 << 20;
