//! The position of a job among the members of its batch.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use protocol::JobId;

/// The position of a job in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMember {
    /// The first member of the batch.
    pub batch: JobId,
    /// Position among the members, from 0.
    pub index: u32,
    /// The number of members.
    pub size: u32,
}

impl BatchMember {
    /// The variable with the position among the members, from 0.
    pub const INDEX_VARIABLE: &str = "LONGSHORE_INDEX";

    /// The names of the variables that tell a member its position.
    pub const VARIABLES: [&str; 3] = ["LONGSHORE_BATCH", Self::INDEX_VARIABLE, "LONGSHORE_BATCH_SIZE"];

    /// The variables that tell a member its position.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let Self { batch, index, size } = self;
        let values = [batch.to_string(), index.to_string(), size.to_string()];
        Self::VARIABLES.into_iter().map(str::to_owned).zip(values).collect()
    }
}
