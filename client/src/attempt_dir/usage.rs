//! `usage`: what an attempt had used when its worker last looked. It means something only if the worker dies before the end is recorded.

use protocol::Usage;
use serde::{Deserialize, Serialize};

use super::{AttemptDir, Error};

/// `usage`, and a part of `exit`.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UsageRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_received_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_written_bytes: Option<u64>,
}

impl AttemptDir {
    /// Records what the attempt has used so far. It is not synced: after a crash of the machine nothing runs any more.
    ///
    /// # Errors
    /// The disk is full, or the directory is gone.
    pub fn record_usage(&self, usage: &Usage) -> Result<(), Error> {
        self.write_unsynced(USAGE, &UsageRecord::from(*usage))
    }

    /// The last record of what the attempt has used; `None` if there is none, or it cannot be read.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.read_if_any::<UsageRecord>(USAGE).ok().flatten().map(Usage::from)
    }
}

impl From<Usage> for UsageRecord {
    fn from(usage: Usage) -> Self {
        let Usage {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        } = usage;
        Self {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        }
    }
}

impl From<UsageRecord> for Usage {
    fn from(record: UsageRecord) -> Self {
        let UsageRecord {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        } = record;
        Self {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        }
    }
}

const USAGE: &str = "usage";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_again_and_a_damaged_one_is_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = AttemptDir::at(directory.path());
        assert_eq!(dir.usage(), None);
        let usage = Usage { cpu_ms: Some(1_730), disk_read_bytes: Some(0), ..Usage::default() };
        dir.record_usage(&usage).expect("written");
        assert_eq!(dir.usage(), Some(usage));
        std::fs::write(directory.path().join(USAGE), "{\"cpu_ms\":").expect("written");
        assert_eq!(dir.usage(), None);
    }
}
