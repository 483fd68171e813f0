//! Slots, and the steps of a stop: ask, kill, remove.

use core::time::Duration;

use protocol::Uptime;

use crate::step::StopStep;

/// Limit of the slots, whatever a server configures; also the wire's limit.
pub(crate) const SLOTS_MAX: u32 = 10_000;

#[derive(Debug)]
pub(crate) struct Slots {
    count: u32,
    busy: u32,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        Self { count: count.min(SLOTS_MAX), busy: 0 }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) const fn busy(&self) -> u32 {
        self.busy
    }

    pub(crate) const fn has_room(&self) -> bool {
        self.busy < self.count
    }

    /// Changes the number of slots. Running attempts are not stopped for it.
    pub(crate) fn resize(&mut self, count: u32) {
        self.count = count.min(SLOTS_MAX);
    }

    pub(crate) fn take(&mut self) {
        self.busy += 1;
    }

    pub(crate) fn release(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }
}

/// The step after `step`, which was taken at `now`, and when to take the one after it. Measured: docs/design/worker-and-docker.md, W6.
pub(crate) fn next_step(step: StopStep, now: Uptime) -> (StopStep, Uptime) {
    match step {
        StopStep::Ask { .. } => (StopStep::Kill, now + (REMOVE_AFTER_GRACE - KILL_AFTER_GRACE)),
        StopStep::Kill | StopStep::Remove => (StopStep::Remove, now + REMOVE_AGAIN),
    }
}

/// Time at which an engine that was asked with this grace should have finished.
pub(crate) fn first_escalation_at(grace: Duration, now: Uptime) -> Uptime {
    now + grace.saturating_add(KILL_AFTER_GRACE)
}

const KILL_AFTER_GRACE: Duration = Duration::from_secs(2);
const REMOVE_AFTER_GRACE: Duration = Duration::from_secs(5);
const REMOVE_AGAIN: Duration = Duration::from_secs(1);
