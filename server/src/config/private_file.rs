//! Files with a token or a password: small, and closed to other users.

use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file with a secret is unusable. `what` names its purpose, such as "token file".
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The file cannot be read.
    #[error("cannot read the {what} {}", .file.display())]
    Unreadable {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        file: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The path is a directory or another non-regular file.
    #[error("the {what} {} is not a regular file", .file.display())]
    NotAFile {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        file: PathBuf,
    },
    /// Other users can read or change the file.
    #[error("the {what} {} has mode {mode:04o}: others can read or change it; run: chmod 600 {}", .file.display(), .file.display())]
    Exposed {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds nothing but blanks.
    #[error("the {what} {} is empty", .file.display())]
    Empty {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        file: PathBuf,
    },
    /// The file is too large for a token or a password.
    #[error("the {what} {} has more than {FILE_BYTES_MAX} bytes", .file.display())]
    TooLarge {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        file: PathBuf,
    },
}

/// The content without the blanks around it.
pub(super) fn read(file: &Path, what: &'static str) -> Result<Vec<u8>, PrivateFileError> {
    let path = || file.to_owned();
    let unreadable = |source| PrivateFileError::Unreadable { what, file: path(), source };
    // Without O_NONBLOCK, opening a FIFO blocks until a writer opens it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.read(true).custom_flags(nonblocking).open(file).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NotAFile { what, file: path() });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS_MAY_READ_OR_WRITE != 0 {
        return Err(PrivateFileError::Exposed { what, file: path(), mode });
    }
    let mut content = Vec::new();
    opened.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(PrivateFileError::TooLarge { what, file: path() });
    }
    match content.trim_ascii() {
        [] => Err(PrivateFileError::Empty { what, file: path() }),
        content => Ok(content.to_vec()),
    }
}

const OTHERS_MAY_READ_OR_WRITE: u32 = 0o066;
/// A larger file is certainly neither a token nor a password.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("password");
        for (bytes, is_read) in [(4096, true), (4097, false)] {
            std::fs::write(&file, "x".repeat(bytes)).expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("mode set");
            match read(&file, "password file") {
                Ok(content) => assert!(is_read && content.len() == bytes),
                Err(error) => assert_eq!(
                    (is_read, error.to_string()),
                    (false, format!("the password file {} has more than 4096 bytes", file.display()))
                ),
            }
        }
    }
}
