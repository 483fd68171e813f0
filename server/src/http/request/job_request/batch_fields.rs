//! The fields of a submission that make a batch of it.

use scheduler::batches::BatchOptions;
use serde_json::Value;

/// The fields of one object that make several jobs of one definition. A list of objects is another form: see [`read_list`](super::read_list).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BatchFields {
    /// This number of jobs, all alike.
    pub(crate) count: Option<u32>,
    /// A job for each of these, whose parameters are laid over those of the request.
    pub(crate) each: Option<Vec<Vec<(String, Value)>>>,
    /// The name of the batch, and its limits.
    pub(crate) options: BatchOptions,
}
