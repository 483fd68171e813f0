//! Maps errors of SQLite to the errors of the store (docs/design/failures.md, R7 and R8).

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::storage;
use crate::store::{CommitError, LoadError, ReadError};

/// Maps the error of a transaction that has been rolled back.
pub(super) fn of_commit(error: Error) -> CommitError {
    match error.sqlite_error_code() {
        _ if is_transient(&error) => CommitError::Unavailable(Box::new(error)),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            CommitError::Refused(error.to_string())
        }
        // Everything else speaks of a disk, a file or a program that cannot be trusted with another try.
        _ => CommitError::Fatal(Box::new(error)),
    }
}

/// True if the same may succeed later.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
        )
    )
}

/// True if a group could not be written because the disk is full.
pub(super) fn is_full(error: &CommitError) -> bool {
    let CommitError::Unavailable(cause) = error else { return false };
    cause.downcast_ref::<Error>().and_then(Error::sqlite_error_code) == Some(ErrorCode::DiskFull)
}

/// Why a store cannot be opened.
pub(super) fn of_load(file: &Path, error: Error) -> LoadError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => LoadError::Unusable(format!(
            "{} is damaged ({error}): restore a backup; nothing was changed",
            file.display()
        )),
        Some(ErrorCode::NotADatabase) => LoadError::Unusable(format!(
            "{} is not a Longshore store: choose another data directory, or move the file away",
            file.display()
        )),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            LoadError::Unusable(format!("{} cannot be written: {error}", file.display()))
        }
        Some(ErrorCode::DiskFull) => LoadError::Unusable(storage::no_room(file.parent().unwrap_or(file))),
        _ => LoadError::Io(Box::new(error)),
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_what_it_lacks_and_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let full = Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None);
        let told = of_load(&place.path().join("longshore.db"), full).to_string();
        let directory = place.path().display().to_string();
        for expected in [directory.as_str(), "MiB free", "8 MiB to start", "make room", "nothing is lost"] {
            assert!(told.contains(expected), "{expected} in {told}");
        }
    }
}
