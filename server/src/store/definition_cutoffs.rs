//! The limits that definitions set for their own ended jobs.

use std::sync::Arc;

use protocol::Timestamp;

/// The limits of one definition: jobs beyond them may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionCutoffs {
    /// The name of the definition.
    pub definition: Arc<str>,
    /// Jobs that ended at or after this instant are kept.
    pub ended_since: Timestamp,
    /// At most this many of them, the newest ones; absent: any number.
    pub ended_max: Option<u64>,
    /// Jobs that failed, expired or were lost at or after this instant are kept, whatever their number; absent: they are as the others.
    pub failed_since: Option<Timestamp>,
}

/// A step of retention by definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionRemoval {
    /// The definitions that have limits. A step looks at each of them: give it some hundreds.
    pub definitions: Arc<[DefinitionCutoffs]>,
    /// Jobs that ended at or after this instant are kept in any case.
    pub kept_since: Timestamp,
    /// The present time.
    pub now: Timestamp,
    /// At most this many rows are deleted at once, so that commits do not wait for long.
    pub rows_max: usize,
}
