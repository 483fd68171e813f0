//! Definitions that were read and are not in force yet, and the places that they come from.

use crate::catalogue::Definitions;
use crate::config::jobs_file::JobsText;

/// Definitions that were read, and may come into force.
pub(super) struct NewSet {
    pub(super) definitions: Definitions,
    /// Each with its position.
    pub(super) warnings: Vec<String>,
    pub(super) text: JobsText,
}

/// The source of definitions.
pub(super) enum Source {
    /// The server's jobs file or directory.
    File,
    /// The text of a caller.
    Proposed(JobsText),
}
