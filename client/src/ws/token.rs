//! The bearer token in its file. It is read at each connection and never shown.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::runtime::docker::in_container;

/// The token cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be opened or read.
    #[error("cannot read the token file {}", .file.display())]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The file is a directory, a pipe or a device.
    #[error("the token file {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Other users can read or change the file.
    #[error("the token file {} has mode {mode:04o}: others can read or change it; run: chmod 600 {}", .file.display(), .file.display())]
    Exposed {
        /// Path of the file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is empty.
    #[error("the token file {} is empty", .0.display())]
    Empty(PathBuf),
    /// The content does not fit into a header.
    #[error("the token file {} must hold one line of at most {TOKEN_BYTES_MAX} visible ASCII characters", .0.display())]
    Malformed(PathBuf),
}

/// Reads the token and trims it.
///
/// # Errors
/// It is no regular file with one token in it, or others can read or change it.
pub fn read(file: &Path) -> Result<String, TokenError> {
    let unreadable = |cause| TokenError::Unreadable { file: file.to_owned(), cause };
    // Opening a pipe would block until its other end is opened.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(file).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(TokenError::NotAFile(file.to_owned()));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if is_exposed(file, mode) {
        return Err(TokenError::Exposed { file: file.to_owned(), mode });
    }
    let mut content = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut content).map_err(unreadable)?;
    let token = content.trim_ascii();
    if token.is_empty() {
        return Err(TokenError::Empty(file.to_owned()));
    }
    if token.len() > TOKEN_BYTES_MAX || !token.iter().all(u8::is_ascii_graphic) {
        return Err(TokenError::Malformed(file.to_owned()));
    }
    Ok(String::from_utf8_lossy(token).into_owned())
}

/// Others can read or change the file. Secrets of jobs, Docker and Podman have mode 0444, because the program may run as any user; nobody
/// outside of their container or directory can reach them.
fn is_exposed(file: &Path, mode: u32) -> bool {
    mode & OTHERS_MAY_WRITE != 0 || mode & OTHERS_MAY_READ != 0 && !is_out_of_reach(file)
}

/// The file is a secret of this container, or only this user may enter a directory above it.
fn is_out_of_reach(file: &Path) -> bool {
    let Ok(file) = fs::canonicalize(file) else { return false };
    let is_secret = file.starts_with(CONTAINER_SECRETS) && in_container();
    is_secret || file.ancestors().skip(1).any(|directory| is_closed(directory, geteuid().as_raw()))
}

/// Only this user and root may enter the directory.
fn is_closed(directory: &Path, user: u32) -> bool {
    fs::metadata(directory)
        .is_ok_and(|it| it.mode() & OTHERS_MAY_ENTER == 0 && [user, ROOT].contains(&it.uid()))
}

const ROOT: u32 = 0;

const OTHERS_MAY_READ: u32 = 0o044;
const OTHERS_MAY_WRITE: u32 = 0o022;
const OTHERS_MAY_ENTER: u32 = 0o011;
/// Directory in which container managers mount secrets.
const CONTAINER_SECRETS: &str = "/run/secrets";
/// The longest token that a header may hold.
const TOKEN_BYTES_MAX: usize = 1024;
/// A longer file holds no token.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(content: &str, mode: u32) -> Result<String, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("token");
        fs::write(&file, content).expect("writes");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("sets");
        read(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn blanks_around_a_token_do_not_matter() {
        assert_eq!(with(" ls_abc \n", 0o600), Ok("ls_abc".to_owned()));
        assert_eq!(with("ls_abc", 0o400), Ok("ls_abc".to_owned()));
    }

    #[test]
    fn a_file_that_others_may_read_is_fine_where_nobody_else_may_go() {
        let root = tempfile::tempdir().expect("a directory");
        let token = root.path().join("token");
        fs::write(&token, "ls_abc").expect("writes");
        let set =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("sets");
        set(&token, 0o444);
        set(root.path(), 0o700);
        assert!(read(&token).is_ok(), "only this user reaches it");
        set(&token, 0o446);
        assert!(read(&token).is_err(), "others may change it");
    }

    #[test]
    fn a_closed_directory_lets_nobody_but_this_user_and_root_in() {
        let directory = tempfile::tempdir().expect("a directory");
        let owner = fs::metadata(directory.path()).expect("it is there").uid();
        for (mode, closed) in [(0o700, true), (0o710, false), (0o701, false), (0o755, false)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("sets");
            assert_eq!(is_closed(directory.path(), owner), closed, "{mode:o}");
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("sets");
        assert_eq!(is_closed(directory.path(), owner + 1), owner == ROOT, "it belongs to another user");
    }

    #[test]
    fn an_invalid_token_is_refused_and_never_shown() {
        let error = |content: &str, mode| with(content, mode).expect_err("is refused");
        assert!(error("ls_abc", 0o646).contains("chmod 600"));
        assert!(error(" \n", 0o600).contains("empty"));
        assert!(error("ls_abc\nls_def", 0o600).contains("one line"));
        assert!(!error("ls abc", 0o600).contains("abc"));
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(dir.path()), Err(TokenError::NotAFile(_))));
        assert!(matches!(read(&dir.path().join("none")), Err(TokenError::Unreadable { .. })));
    }
}
