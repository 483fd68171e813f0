//! The share that members of large batches have of limits at a submission. They take it when their batch is accepted, so that further
//! requests cannot exceed a limit while the members are being made.

use alloc::collections::BTreeMap;

use crate::ids::DefinitionNo;
use crate::limits::LimitId;

/// Jobs of one request, or of all large batches that are not complete, by the limits that count them.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// Jobs that are queued as soon as they are made and visible.
    pub queued: usize,
    /// Those of definitions with `max_queued`.
    pub queued_of: BTreeMap<DefinitionNo, usize>,
    /// Jobs that are not made, by their limit of permits. Only limits that may refuse jobs are counted.
    pub permits: BTreeMap<LimitId, u64>,
}

impl Demand {
    /// No limit counts a job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued == 0 && self.queued_of.is_empty() && self.permits.is_empty()
    }

    /// Counts the jobs of a batch.
    pub(super) fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        for (definition, jobs) in &other.queued_of {
            *self.queued_of.entry(*definition).or_default() += jobs;
        }
        for (limit, jobs) in &other.permits {
            *self.permits.entry(limit.clone()).or_default() += jobs;
        }
    }

    /// Counts the jobs of a batch out.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.queued = self.queued.saturating_sub(other.queued);
        for (definition, jobs) in &other.queued_of {
            if let Some(counted) = self.queued_of.get_mut(definition) {
                *counted = counted.saturating_sub(*jobs);
            }
        }
        self.queued_of.retain(|_, jobs| *jobs > 0);
        for (limit, jobs) in &other.permits {
            self.made(limit, *jobs);
        }
    }

    /// Counts jobs out of their limit: from now on the limit itself counts them.
    pub(super) fn made(&mut self, limit: &LimitId, jobs: u64) {
        let Some(counted) = self.permits.get_mut(limit) else { return };
        *counted = counted.saturating_sub(jobs);
        if *counted == 0 {
            self.permits.remove(limit);
        }
    }
}
