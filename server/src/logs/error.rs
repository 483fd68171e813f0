//! Errors of the logs.

use std::io;
use std::path::Path;

/// The logs cannot be opened, written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// A file operation failed.
    #[error("{what}")]
    Io {
        /// The operation that failed, with the file's name.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The writer has ended: nothing is written any more.
    #[error("the log writer has stopped")]
    Stopped,
}

pub(super) fn failed(what: &str, path: &Path, source: io::Error) -> LogsError {
    LogsError::Io { what: format!("cannot {what} {}", path.display()), source }
}
