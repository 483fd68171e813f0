//! Operations on workers, as [`Act::Operate`](super::Act::Operate) numbers them.

use std::time::Duration;

use crate::world::protocol::Timestamp;
use crate::world::scheduler::input::Operation;
use crate::world::scheduler::origin::Origin;

#[allow(dead_code, reason = "used in part by each test")]
pub(crate) const FORGET: u8 = 6;
/// The last one. The first workers are not revoked, so that walks do not run out of workers.
#[allow(dead_code, reason = "used in part by each test")]
pub(crate) const REVOKE: u8 = 8;

/// The operation with this number.
pub(super) fn operation(worker: u8, what: u8, now: Timestamp) -> Operation {
    [
        Operation::Cordon { until: None, origin: Origin::default() },
        Operation::Cordon { until: Some(now + Duration::from_secs(20)), origin: Origin::default() },
        Operation::Uncordon,
        Operation::Drain(None, Origin::default()),
        Operation::Drain(Some(Duration::from_secs(15)), Origin::default()),
        Operation::Slots(u32::from(worker)),
        Operation::Forget,
        Operation::Reset,
        Operation::Revoke,
    ][usize::from(if worker < 3 { what.min(REVOKE - 1) } else { what })]
    .clone()
}
