//! Trust in a worker after failures: kinds of jobs that it gets none of for a while, and its circuit breaker. A new process of the worker
//! begins anew, because the cause may have been repaired.

use super::breaker::Breaker;
use crate::definition::Definition;
use crate::placement::exclusion::Exclusions;

/// Consequences of a worker's failures.
#[derive(Debug, Default)]
pub struct Health {
    /// Jobs that it gets none of for a while.
    pub exclusions: Exclusions,
    /// Its circuit breaker.
    pub breaker: Breaker,
}

impl Health {
    /// The worker is trusted, or may get a probe.
    #[must_use]
    pub fn allows_more(&self) -> bool {
        !self.breaker.is_suspect() || (self.breaker.probe().is_none() && !self.exclusions.is_suspended())
    }

    /// Records that a container of this definition started. Returns true if the worker was suspect and is trusted again.
    pub fn record_start(&mut self, definition: &Definition) -> bool {
        self.exclusions.reset_backoff(definition);
        // A start that was under way when the worker became suspect does not end its exclusion.
        !self.exclusions.is_suspended() && self.breaker.succeed()
    }
}
