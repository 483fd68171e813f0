//! Any use of resources.

use longshore_protocol::report::{Usage, UsageSample};
use longshore_protocol::wire;
use proptest::option::of;
use proptest::prelude::*;

use super::token;

pub(super) fn sample() -> impl Strategy<Value = UsageSample> {
    (token(), usage(), of(0..=wire::OFFSET_MAX)).prop_map(|(token, usage, memory_bytes)| UsageSample {
        token,
        usage,
        memory_bytes,
    })
}

pub(super) fn usage() -> impl Strategy<Value = Usage> {
    proptest::array::uniform6(of(0..=wire::OFFSET_MAX)).prop_map(|it| Usage {
        cpu_ms: it[0],
        memory_peak_bytes: it[1],
        network_received_bytes: it[2],
        network_sent_bytes: it[3],
        disk_read_bytes: it[4],
        disk_written_bytes: it[5],
    })
}
