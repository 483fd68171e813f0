//! States of the store that may come back.

use std::time::Duration;

use crate::disk::Disk;

/// A state of the store that may come back.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) disk: Disk,
    pub(crate) kind: BackupKind,
    /// How long the server is away then.
    pub(crate) away: Duration,
}

/// The way in which an old state of the store comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackupKind {
    /// As it was, like after a failover that lost commits. Numbers are given a second time.
    Raw,
    /// By `longshore restore`, which leaves out all numbers that may have been given since, and all slots that may have fired.
    Restored,
}
