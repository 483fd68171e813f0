//! Exclusions of workers, and suspect workers.

use std::time::Duration;

use super::placing::is_suspended;
use super::{Exclusion, Model};
use crate::world::protocol::WorkerId;
use crate::world::scheduler::definition::Definition;
use crate::world::scheduler::placement::exclusion::Excluded;

impl Model {
    /// The shortest and the longest in seconds, doubling with each time in a row; without them, until the worker starts anew.
    pub(super) fn exclude(&mut self, worker: WorkerId, of: Excluded, seconds: Option<(u64, u64)>) {
        let now = self.now.up;
        let worker = self.worker_mut(worker).expect("it speaks");
        // The first and the longest duration tell the cause.
        let is_same = |it: &Exclusion| it.of == of && it.seconds == seconds;
        let before = worker.exclusions.iter().find(|it| is_same(it)).copied();
        if before.is_some_and(|it| it.active) {
            return;
        }
        let strikes = before.map_or(1, |it| it.strikes + 1);
        let until = seconds
            .map(|(first, most)| now + Duration::from_secs((first << (strikes - 1).min(20)).min(most)));
        worker.exclusions.retain(|it| !is_same(it));
        worker.exclusions.push(Exclusion { of, seconds, until, strikes, active: true });
    }

    /// A worker that failed to start three definitions in a row is suspect, and each failure of a suspect one excludes it from everything.
    pub(super) fn distrust(&mut self, id: WorkerId, definition: &Definition) {
        let worker = self.worker_mut(id).expect("it speaks");
        if worker.suspect.is_none() && !worker.failed.contains(&definition.revision.0) {
            worker.failed.push(definition.revision.0);
        }
        if worker.failed.len() >= 3 {
            worker.suspect.get_or_insert_default();
            self.exclude(id, Excluded::Suspect, Some((60, 3_600)));
        }
    }

    /// A start worked: what was held against this worker before, and is over, is forgotten.
    pub(super) fn forget_failures(&mut self, worker: WorkerId, definition: &Definition) {
        let worker = self.worker_mut(worker).expect("it speaks");
        worker.exclusions.retain(|it| {
            let is_meant = match it.of {
                Excluded::Anything | Excluded::Suspect => true,
                Excluded::Runtime(kind) => kind == definition.container.runtime,
                Excluded::Revision(revision) => revision == definition.revision,
            };
            it.active || !is_meant
        });
        if !is_suspended(worker) {
            worker.failed.clear();
            worker.suspect = None;
        }
    }
}
