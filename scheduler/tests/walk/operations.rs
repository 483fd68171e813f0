//! Operations on workers, as [`Act::Operate`](super::Act::Operate) numbers them, and pauses.

use std::time::Duration;

use crate::world::World;
use crate::world::protocol::Timestamp;
use crate::world::scheduler::input::Operation;
use crate::world::scheduler::origin::Origin;
use crate::world::scheduler::step::Change;

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

/// Somebody pauses or resumes a definition, a group, or everything; or the secrets of some definitions are gone, or there again.
pub(super) fn pause(world: &mut World, what: u8, paused: bool) {
    match PAUSED.get(usize::from(what)) {
        Some(target) => world.pause(target, paused),
        None if paused => world.missing_secrets(["a", "b c"][usize::from(what) - 6]),
        None => world.missing_secrets(""),
    }
}

/// Somebody pauses a definition, a group, or everything for this number of milliseconds.
pub(super) fn pause_for(world: &mut World, what: u8, lasts: u64) {
    let lasts = Some(Duration::from_millis(lasts));
    world.pause_with(PAUSED[usize::from(what)], true, lasts, Origin::default());
}

/// Somebody pauses or resumes one of the latest batches.
pub(super) fn pause_batch(world: &mut World, which: u8, paused: bool, lasts: Option<u64>) {
    let added = world.steps.iter().rev().flat_map(|(_, step)| &step.changes);
    let mut firsts = added.filter_map(|change| match change {
        Change::BatchAdded(batch) => Some(batch.first),
        _ => None,
    });
    let Some(first) = firsts.nth(usize::from(which)) else { return };
    let lasts = lasts.map(Duration::from_millis);
    world.pause_with(&format!("batch:j{first}"), paused, lasts, Origin::default());
}

/// Targets of pauses.
const PAUSED: [&str; 6] = ["a", "b", "c", "d", "group:g", "all"];
