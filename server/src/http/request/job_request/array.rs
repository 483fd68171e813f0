//! Requests for several jobs of one definition.

use scheduler::batches::BatchOptions;
use serde_json::Value;

/// The part of a request that makes several jobs of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ArrayRequest {
    /// So many jobs that are all alike.
    pub(crate) count: Option<u32>,
    /// A job for each of these, whose parameters are laid over those of the request.
    pub(crate) each: Option<Vec<Vec<(String, Value)>>>,
    /// The name of the batch, and its limits.
    pub(crate) options: BatchOptions,
}
