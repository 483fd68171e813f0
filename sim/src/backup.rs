//! States of the store that may come back.

use std::time::Duration;

use crate::disk::Disk;

/// A state of the store that may come back.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) disk: Disk,
    /// True if it comes back as it was.
    pub(crate) is_raw: bool,
    /// How long the server is away then.
    pub(crate) away: Duration,
}
