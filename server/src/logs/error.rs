//! Errors of the logs.

use std::io;
use std::path::Path;

use rustix::io::Errno;

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

impl LogsError {
    /// True if the same may succeed later: the process or the system has no file handle or no memory to spare.
    pub(super) fn is_transient(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR].map(Errno::raw_os_error);
        source.raw_os_error().is_some_and(|code| passing.contains(&code))
    }
}

pub(super) fn failed(what: &str, path: &Path, source: io::Error) -> LogsError {
    LogsError::Io { what: format!("cannot {what} {}", path.display()), source }
}
