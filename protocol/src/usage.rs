//! Resources that attempts use. The figures are for people: no decision depends on them.
//!
//! The totals of an attempt travel with its final report. While it runs, its worker sends samples, which may be
//! lost and which no state machine sees.

use bincode::{Decode, Encode};

use crate::ids::Token;
use crate::wire::limits::OFFSET_MAX;

/// Resources that an attempt has used since its start. A figure that its worker could not measure is absent, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Usage {
    /// CPU time of all its processes, in user and system mode, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// The most memory that it had at once, in bytes. For containers it is the kernel's own peak where there is one,
    /// which counts the page cache.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes that its network interfaces received, without the loopback.
    pub network_received_bytes: Option<u64>,
    /// Bytes that its network interfaces sent, without the loopback.
    pub network_sent_bytes: Option<u64>,
    /// Bytes that block devices read for it. Reads from the page cache do not count.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that block devices wrote for it.
    pub disk_written_bytes: Option<u64>,
}

/// Resources of a running attempt at the moment of the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct UsageSample {
    /// The attempt.
    pub token: Token,
    /// Resources that it has used since its start.
    pub usage: Usage,
    /// Memory that it has now, in bytes, without page cache that the kernel can take back.
    pub memory_bytes: Option<u64>,
}

impl Usage {
    /// Nothing was measured.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// The figures with their names, in the order of their declaration.
    #[must_use]
    pub const fn figures(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("cpu_ms", self.cpu_ms),
            ("memory_peak_bytes", self.memory_peak_bytes),
            ("network_received_bytes", self.network_received_bytes),
            ("network_sent_bytes", self.network_sent_bytes),
            ("disk_read_bytes", self.disk_read_bytes),
            ("disk_written_bytes", self.disk_written_bytes),
        ]
    }

    /// The larger of each figure: all of them only grow.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        self.with(other, Option::max)
    }

    /// The figures, cut to what the wire carries.
    #[must_use]
    pub fn clamped(self) -> Self {
        self.with(self, |figure, _| figure.map(|it| it.min(OFFSET_MAX)))
    }

    fn with(self, other: Self, pick: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Self {
        Self {
            cpu_ms: pick(self.cpu_ms, other.cpu_ms),
            memory_peak_bytes: pick(self.memory_peak_bytes, other.memory_peak_bytes),
            network_received_bytes: pick(self.network_received_bytes, other.network_received_bytes),
            network_sent_bytes: pick(self.network_sent_bytes, other.network_sent_bytes),
            disk_read_bytes: pick(self.disk_read_bytes, other.disk_read_bytes),
            disk_written_bytes: pick(self.disk_written_bytes, other.disk_written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_records_has_the_larger_of_each_figure() {
        let early = Usage { cpu_ms: Some(5), memory_peak_bytes: Some(900), ..Usage::default() };
        let late = Usage { cpu_ms: Some(7), memory_peak_bytes: Some(100), disk_read_bytes: Some(0), ..early };
        let both = Usage { memory_peak_bytes: Some(900), ..late };
        assert_eq!((early.later(late), late.later(early)), (both, both));
        assert!(Usage::default().is_unknown() && !both.is_unknown());
    }

    #[test]
    fn a_figure_that_the_wire_could_not_carry_is_cut() {
        let absurd = Usage { cpu_ms: Some(u64::MAX), disk_read_bytes: Some(3), ..Usage::default() };
        assert_eq!(absurd.clamped(), Usage { cpu_ms: Some(OFFSET_MAX), ..absurd });
    }
}
