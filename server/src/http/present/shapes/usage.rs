//! JSON of the resources that attempts use. An absent figure was not measured; it is not zero.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// Resources that an attempt has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// CPU time of all its processes, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The most memory that it had at once, page cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Bytes received over its network interfaces, without the loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_received_bytes: Option<u64>,
    /// Bytes sent over its network interfaces, without the loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_sent_bytes: Option<u64>,
    /// Bytes read from block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_written_bytes: Option<u64>,
}

/// The resources of one attempt of the job over time, as far as this server remembers them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobUsage {
    /// The number of the attempt within its job.
    pub attempt: u32,
    /// Samples, the oldest first; at most 120, so a longer life makes them sparser. A restart of the server forgets them.
    pub points: Vec<UsagePoint>,
}

/// A sample of a running attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsagePoint {
    /// The arrival of the sample.
    pub at: Time,
    /// CPU time since the start of the attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Memory at that moment, without page cache that the kernel can take back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Usage {
    /// The figures; `None` if there is none.
    #[must_use]
    pub fn of(usage: &protocol::Usage) -> Option<Self> {
        let protocol::Usage {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        } = *usage;
        (!usage.is_unknown()).then_some(Self {
            cpu_ms,
            memory_peak_bytes,
            network_received_bytes,
            network_sent_bytes,
            disk_read_bytes,
            disk_written_bytes,
        })
    }
}
