//! Reads about the jobs of slots: how they ended, and how their retries did.

use protocol::{JobId, Timestamp};

use super::{FailedFires, FireFilter, ReadError, SlotEnd};

/// The part of the read side for the jobs of slots.
pub trait SlotArchive {
    /// The state of each of these jobs of the ledger and of its last retry, in their order. The last retry is the newest one of it or of its
    /// retries that is kept, also if others between them are not.
    ///
    /// # Errors
    /// The store cannot be read.
    fn slot_ends(&self, jobs: &[JobId]) -> Result<Vec<SlotEnd>, ReadError>;

    /// The slot of each of these jobs, in their order; of a retry the one that it carries on. None for jobs without one or that are not kept.
    ///
    /// # Errors
    /// The store cannot be read.
    fn slots(&self, jobs: &[JobId]) -> Result<Vec<Option<Timestamp>>, ReadError>;

    /// The newest rows of the ledger of a definition whose last job is an unresolved failure, at most `limit`. One call searches at most
    /// [`FIRES_SEARCHED`] rows below `before`: the next one goes on from there.
    ///
    /// # Errors
    /// The store cannot be read.
    fn failed_fires(
        &self,
        definition: &str,
        filter: &FireFilter,
        limit: usize,
    ) -> Result<FailedFires, ReadError>;
}

/// Rows of the ledger that one read searches for failures. Each costs a look into two indexes: some ten milliseconds for all.
pub const FIRES_SEARCHED: u32 = 10_000;
