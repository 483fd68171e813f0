//! JSON of limits of processes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A limit of each process; −1 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ulimit {
    /// The limit that holds.
    pub soft: i64,
    /// A process may raise its limit up to this.
    pub hard: i64,
}
