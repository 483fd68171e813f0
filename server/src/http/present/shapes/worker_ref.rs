//! References to workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reference to a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRef {
    /// Its number.
    pub id: u64,
    /// The name given to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}
