//! The selection of events by a reader.

use protocol::{JobId, WorkerId};

use super::record::EventRecord;
use crate::wildcard::matches;

/// Selects events; an absent condition selects all.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Kinds, with `*` for any text; one of them fits. Empty: all.
    pub kinds: Vec<String>,
    /// Names of definitions, with `*` for any text; one of them fits. Empty: all.
    pub names: Vec<String>,
    /// States of the job or worker; one of them fits. Empty: all.
    pub states: Vec<String>,
    /// The worker concerned.
    pub worker: Option<WorkerId>,
    /// The batch of the job.
    pub batch: Option<JobId>,
    /// The job on several workers (`run_on`): its own events and those of its members.
    pub parent: Option<JobId>,
}

impl EventFilter {
    /// True if there is no condition.
    #[must_use]
    pub const fn selects_all(&self) -> bool {
        self.kinds.is_empty()
            && self.names.is_empty()
            && self.states.is_empty()
            && self.worker.is_none()
            && self.batch.is_none()
            && self.parent.is_none()
    }

    /// True if the event fits every condition.
    #[must_use]
    pub fn selects(&self, event: &EventRecord) -> bool {
        let fits_any = |patterns: &[String], text: Option<&str>| {
            patterns.is_empty() || text.is_some_and(|text| patterns.iter().any(|it| matches(it, text)))
        };
        fits_any(&self.kinds, Some(event.kind))
            && fits_any(&self.names, event.name())
            && fits_any(&self.states, event.state())
            && self.worker.is_none_or(|worker| event.worker() == Some(worker))
            && self.batch.is_none_or(|batch| event.batch() == Some(batch))
            && self.parent.is_none_or(|parent| event.is_of_parent(parent))
    }
}
