//! The limits of retention, and how much one step of it has deleted.

use std::collections::BTreeMap;

use protocol::Timestamp;

/// The limits of retention: rows beyond them may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionCutoffs {
    /// Jobs that ended at or after this instant, and slots that were decided since then.
    pub ended_since: Timestamp,
    /// Of those, at most this many.
    pub ended_max: u64,
    /// Idempotency keys that were given at or after this instant.
    pub keyed_since: Timestamp,
    /// Late reports that came at or after this instant; those of a deleted job go with it.
    pub late_since: Timestamp,
    /// At most this many rows of each kind are deleted at once, so that commits do not wait for long.
    pub rows_max: usize,
    /// The time that this goes by, to be written down for the next process; absent: not this time.
    pub by: Option<Timestamp>,
}

/// The rows that one step of retention deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Ended jobs.
    pub jobs: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Late reports, beside those of deleted jobs.
    pub late_reports: u64,
    /// Rows of the fire ledger.
    pub fires: u64,
    /// Schedules that left jobs.yaml and have no such row any more.
    pub schedules: u64,
    /// True if there is more to delete.
    pub more: bool,
}

/// For definitions that limit the age of output: output of jobs that ended before this instant is not kept.
pub type OutputLimits = BTreeMap<String, Timestamp>;
