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
}

/// The content without the blanks around it. Longer files are cut: no token and no password is that long.
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
    opened.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut content).map_err(unreadable)?;
    match content.trim_ascii() {
        [] => Err(PrivateFileError::Empty { what, file: path() }),
        content => Ok(content.to_vec()),
    }
}

const OTHERS_MAY_READ_OR_WRITE: u32 = 0o066;
/// A larger file is certainly neither a token nor a password.
const FILE_BYTES_MAX: u64 = 4096;
