//! The errors of a reload.

use protocol::Revision;

use crate::config::jobs_file::Faults;
use crate::engine::Busy;
use crate::policy::PolicyError;

/// The reason why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file has faults, or holds no jobs.
    #[error("{0}")]
    Faults(Faults),
    /// The definitions are not those that the caller expects.
    #[error("the definitions have the revision {current}")]
    Unexpected {
        /// Revision of the present set.
        current: Revision,
    },
    /// The file does not have the definitions that the caller expects.
    #[error("the file has the revision {found}")]
    UnexpectedNew {
        /// Revision of the set in the file.
        found: Revision,
    },
    /// The policy of the server cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The engine has no room for a command: the same request succeeds later.
    #[error("the server is busy")]
    Busy,
    /// The thread that read the file panicked.
    #[error("reading the file failed: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl From<Busy> for ReloadError {
    fn from(Busy: Busy) -> Self {
        Self::Busy
    }
}
