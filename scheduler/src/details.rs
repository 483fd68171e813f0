//! Details of a job. The store keeps them. The scheduler takes the keys of limits from them when the job is submitted; after that no decision
//! depends on them.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::container::Overrides;

use crate::params::JobParams;

/// Data of a job that no decision depends on after its submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDetails {
    /// Overrides of its definition.
    pub overrides: Overrides,
    /// Names and values for people and filters.
    pub labels: Vec<(String, String)>,
    /// Parameters, with what follows from them.
    pub params: JobParams,
    /// It comes after other jobs, and is told how they ended.
    pub has_predecessors: bool,
}

impl JobDetails {
    /// Returns whether a worker gets something beside the definition: overrides, parameters, or how the jobs before it ended.
    #[must_use]
    pub fn has_overrides(&self) -> bool {
        !self.overrides.is_empty() || !self.params.is_empty() || self.has_predecessors
    }

    /// Returns whether nothing needs to be stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_overrides() && self.labels.is_empty()
    }

    /// The overrides that a worker gets, with everything that follows from parameters.
    #[must_use]
    pub fn effective_overrides(&self) -> Overrides {
        self.params.applied_to(&self.overrides)
    }
}
