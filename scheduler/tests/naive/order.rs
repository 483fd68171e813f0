//! The order of waiting jobs.

use super::{Job, LiveState};

impl Job {
    /// It waits for one worker, or for one of a list: that of its definition, or its own.
    pub(super) fn goes_first(&self) -> bool {
        let LiveState::Queued { pinned } = self.standing else { return false };
        let asks_for_names = self.narrowing.as_ref().is_some_and(|narrowing| !narrowing.workers.is_empty());
        pinned.is_some() || !self.definition.placement.workers.is_empty() || asks_for_names
    }

    /// Its position in the queue: priority, then pinned first, then due time, then number.
    pub(super) fn order(&self) -> (i64, bool, i64, u64) {
        (-self.steps(), !self.goes_first(), self.exact_due(), self.id)
    }

    /// Its priority in whole steps. With ageing all jobs gain one where a period ends, so it has one less for each that ended before it
    /// became due.
    pub(super) fn steps(&self) -> i64 {
        i64::from(self.priority) - self.ageing.map_or(0, |period| self.due.0.div_euclid(period))
    }

    /// The time that decides within a step. With ageing a step of priority is worth a period.
    pub(super) fn exact_due(&self) -> i64 {
        self.due.0 - self.ageing.map_or(0, |period| i64::from(self.priority) * period)
    }
}
