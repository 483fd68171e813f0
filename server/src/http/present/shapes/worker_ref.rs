//! References to workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reference to a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRef {
    /// The id of the worker.
    pub id: u64,
    /// The name of the worker; absent if the server does not know it any more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}
