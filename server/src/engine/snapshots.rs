//! The snapshot that an open group publishes, and the explanations that are sent together with it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Engine, SNAPSHOT_EVERY};
use crate::clock;

impl Engine {
    /// Adds a snapshot to the open group if something has changed, but not too often. A worker that has just joined and an operator's
    /// command are shown at once. Requests for explanations wait for it, so that verdicts and facts are of one moment.
    pub(super) fn take_snapshot(&mut self) {
        self.snapshot_due |= self.scheduler.take_changed();
        let urgent = std::mem::take(&mut self.snapshot_urgent);
        if self.snapshot_due {
            if !urgent && self.snapshot_at.elapsed() < SNAPSHOT_EVERY {
                return;
            }
            self.snapshot_due = false;
            self.snapshot_at = Instant::now();
            self.open.effects.snapshot = Some(Arc::new(self.scheduler.snapshot()));
        }
        let now = clock::now();
        for (job, reply) in std::mem::take(&mut self.explains) {
            self.open.effects.explanations.push((reply, self.scheduler.explain(now, job)));
        }
    }
}
