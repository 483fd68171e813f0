//! Token files: one secret each, for the eyes of the server's user only.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A token file is no good.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file {}", .file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is a directory, or something else that holds no text.
    #[error("the token file {} is not a regular file", .file.display())]
    NotAFile {
        /// Which.
        file: PathBuf,
    },
    /// Others can read or change it.
    #[error("the token file {} has mode {mode:04o}: others can read or change it; run: chmod 600 {}", .file.display(), .file.display())]
    Exposed {
        /// Which.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no token in it.
    #[error("the token file {} is empty", .file.display())]
    Empty {
        /// Which.
        file: PathBuf,
    },
    /// A header cannot carry it.
    #[error("the token file {} must hold one line of at most {TOKEN_BYTES_MAX} visible ASCII characters", .file.display())]
    Malformed {
        /// Which.
        file: PathBuf,
    },
}

/// The token in a file, without the blanks around it.
pub(super) fn read(file: &Path) -> Result<Token, TokenError> {
    let unreadable = |source| TokenError::Unreadable { file: file.to_owned(), source };
    // Without O_NONBLOCK, opening a FIFO waits for its other end for ever.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.read(true).custom_flags(nonblocking).open(file).map_err(unreadable)?;
    let metadata = opened.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(TokenError::NotAFile { file: file.to_owned() });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS_MAY_READ_OR_WRITE != 0 {
        return Err(TokenError::Exposed { file: file.to_owned(), mode });
    }
    let mut content = Vec::new();
    opened.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut content).map_err(unreadable)?;
    let content = content.trim_ascii();
    if content.is_empty() {
        return Err(TokenError::Empty { file: file.to_owned() });
    }
    let is_token = content.len() <= TOKEN_BYTES_MAX && content.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(content) {
        Ok(token) if is_token => Ok(Token(token.to_owned())),
        _ => Err(TokenError::Malformed { file: file.to_owned() }),
    }
}

const OTHERS_MAY_READ_OR_WRITE: u32 = 0o066;
/// A header line must hold it.
const TOKEN_BYTES_MAX: usize = 1024;
/// Beyond this the file cannot be a token with some blanks.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_content(content: &[u8], mode: u32) -> Result<Token, TokenError> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("token");
        fs::write(&file, content).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode set");
        read(&file)
    }

    #[test]
    fn blanks_around_a_token_are_not_part_of_it() {
        let token = read_content(b"\n  s3cret \r\n", 0o600).expect("a token");
        assert_eq!(token.reveal(), "s3cret");
        assert!(!format!("{token:?}").contains("s3cret"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        for mode in [0o644, 0o640, 0o604, 0o620] {
            let text = read_content(b"s3cret", mode).expect_err("exposed").to_string();
            assert!(text.contains(&format!("{mode:04o}")) && text.contains("run: chmod 600 /"), "{text}");
        }
        assert!(read_content(b"s3cret", 0o400).is_ok());
    }

    #[test]
    fn empty_and_malformed_tokens_are_refused() {
        assert!(matches!(read_content(b" \n\n", 0o600), Err(TokenError::Empty { .. })));
        for content in [&b"two words"[..], b"two\nlines", b"\xff\xfe", &[b'a'; 2000]] {
            let error = read_content(content, 0o600).expect_err("malformed");
            assert!(matches!(error, TokenError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(directory.path()), Err(TokenError::NotAFile { .. })));
        let missing = directory.path().join("missing");
        assert!(matches!(read(&missing), Err(TokenError::Unreadable { .. })));
    }
}
