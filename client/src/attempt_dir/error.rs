//! Errors of attempt directories.

use std::io;
use std::path::{Path, PathBuf};

/// A directory cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another attempt has the same job and fence: the server's database went back in time, or the directory is shared.
    #[error("{} belongs to another attempt with the same number (nonce {other})", path.display())]
    Taken {
        /// Path of the directory.
        path: PathBuf,
        /// Nonce of the attempt that has it.
        other: protocol::Nonce,
    },
    /// The system refused an operation.
    #[error("cannot use {}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The content of a file is not valid.
    #[error("{} cannot be understood", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// The disk is full, or a quota is used up.
    #[must_use]
    pub fn is_for_lack_of_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }
}

pub(super) fn io_error_at(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_path_buf();
    |source| Error::Io { path, source }
}
