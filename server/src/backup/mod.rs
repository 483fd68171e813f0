//! Backups: a copy of the store and of all output beside it, taken while a server writes, and put in the place of a store that was lost.
//!
//! ```text
//! backup/longshore.db       the store as it was at one commit: an ordinary SQLite file
//! backup/logs/*.seg, *.idx  all output that was there at that commit, and maybe some that came after it
//! backup/backup.json        what this is, and the size and SHA-256 of every file; written last: without it there is no backup
//! ```
//!
//! The database is copied first, the output after it: so a job that the copy shows as ended has all of its output that had arrived
//! by then. What had not is shown as missing after a restore, unless its worker still has it.

mod files;
mod last;
mod manifest;
mod restore;
mod take;

use std::path::{Path, PathBuf};

pub use last::{FailedBackup, LastBackup};
pub use manifest::{FileEntry, Manifest};
pub use restore::{Restored, restore};
pub use take::take;

use crate::store::LoadError;

/// A backup cannot be taken, or cannot be restored. Nothing that was there before is lost by it.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target cannot be used: it has content, another backup is being made there, or its path has no name. The caller decides.
    #[error("{0}")]
    Occupied(String),
    /// There is no backup where one was said to be.
    #[error("{0}")]
    NoBackup(String),
    /// The backup is not what it was when it was made.
    #[error("{0}")]
    Damaged(String),
    /// The store, or its copy, cannot be used.
    #[error(transparent)]
    Store(#[from] LoadError),
    /// The disk, or the quota on it, has no room for the backup.
    #[error(
        "the disk of {}, the target of the backup, is full: make room there, or name a directory on another disk with --to",
        .to.display()
    )]
    TargetFull {
        /// The target, as the caller named it.
        to: PathBuf,
    },
    /// The backup cannot be written for another reason.
    #[error("cannot write the backup to {}", .to.display())]
    Target {
        /// The target, as the caller named it.
        to: PathBuf,
        /// The operation that failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file operation failed.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// The operation that failed, as a verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// The name of the store within a data directory, and within a backup.
const STORE: &str = "longshore.db";
/// The name of the directory with the output, likewise.
const LOGS: &str = "logs";

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { what, path, source }
}

#[cfg(test)]
mod tests;
