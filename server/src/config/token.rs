//! Token files: one token each, readable only by the server's user.

use std::fmt;
use std::path::{Path, PathBuf};

use super::private_file::{self, PrivateFileError};

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The token itself.
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

/// A token file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read, is empty, or others can read it.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The token does not fit into a header.
    #[error("the token file {} must hold one line of at most {TOKEN_BYTES_MAX} visible ASCII characters", .file.display())]
    Malformed {
        /// The path of the token file.
        file: PathBuf,
    },
    /// The token is short enough to be guessed.
    #[error(
        "the token in {} has at most {bits} bits; it needs {TOKEN_BITS_MIN}: make one with: (umask 077; openssl rand -hex 32 > {})",
        .file.display(), .file.display()
    )]
    Weak {
        /// The path of the token file.
        file: PathBuf,
        /// The upper bound of the token's entropy.
        bits: u32,
    },
    /// Both token files hold the same token. The server takes its bearer for a client of the API, so no worker could connect.
    #[error(
        "--api-token-file (LONGSHORE_API_TOKEN_FILE) and --worker-token-file (LONGSHORE_WORKER_TOKEN_FILE) hold the same token: \
         workers need one of their own"
    )]
    Same,
}

/// The tokens of clients and of workers.
pub(super) fn read_both(
    api: Option<&Path>,
    worker: Option<&Path>,
) -> Result<(Option<Token>, Option<Token>), TokenError> {
    let (api, worker) = (api.map(read).transpose()?, worker.map(read).transpose()?);
    if api.is_some() && api == worker {
        return Err(TokenError::Same);
    }
    Ok((api, worker))
}

/// The token in a file, without the blanks around it.
pub(super) fn read(file: &Path) -> Result<Token, TokenError> {
    let content = private_file::read(file, "token file")?;
    let is_token = content.len() <= TOKEN_BYTES_MAX && content.iter().all(u8::is_ascii_graphic);
    match String::from_utf8(content) {
        Ok(token) if is_token => match entropy_bits_max(&token) {
            bits if bits < TOKEN_BITS_MIN => Err(TokenError::Weak { file: file.to_owned(), bits }),
            _ => Ok(Token(token)),
        },
        _ => Err(TokenError::Malformed { file: file.to_owned() }),
    }
}

/// The bits that a random token of this length and alphabet has at most. A word that a person chose has fewer, but a short one is
/// recognized in any case.
fn entropy_bits_max(token: &str) -> u32 {
    let has = |class: fn(&u8) -> bool| token.bytes().any(|byte| class(&byte));
    let is_hex = token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        || token.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
    // Tenths of a bit: log2 of 10, 16, 32 or 64 letters.
    let tenths = match () {
        () if !has(|byte| !byte.is_ascii_digit()) => 33,
        () if is_hex => 40,
        () if !(has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)) => 50,
        () => 60,
    };
    let distinct: std::collections::BTreeSet<u8> = token.bytes().collect();
    let length = u32::try_from(token.len()).unwrap_or(u32::MAX);
    // A random token of this length has more different letters than that.
    if distinct.len() < LETTERS_MIN { 0 } else { length.saturating_mul(tenths) / 10 }
}

/// Fewer different letters are a repetition and not a random token.
const LETTERS_MIN: usize = 8;
/// The least entropy of a token: 32 hexadecimal digits.
const TOKEN_BITS_MIN: u32 = 128;
/// The token must fit into a header line.
const TOKEN_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

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
        let token = read_content(b"\n  0123456789abcdef0123456789abcdef \r\n", 0o600).expect("a token");
        assert_eq!(token.reveal(), "0123456789abcdef0123456789abcdef");
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        for mode in [0o644, 0o640, 0o604, 0o620] {
            let text = read_content(b"s3cret", mode).expect_err("exposed").to_string();
            assert!(text.contains(&format!("{mode:04o}")) && text.contains("run: chmod 600 /"), "{text}");
        }
        assert!(read_content(b"0123456789abcdef0123456789abcdef", 0o400).is_ok());
    }

    #[test]
    fn empty_and_malformed_tokens_are_refused() {
        assert!(matches!(
            read_content(b" \n\n", 0o600),
            Err(TokenError::File(PrivateFileError::Empty { .. }))
        ));
        for content in [&b"two words"[..], b"two\nlines", b"\xff\xfe", &[b'a'; 2000]] {
            let error = read_content(content, 0o600).expect_err("malformed");
            assert!(matches!(error, TokenError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn a_token_below_128_bits_is_refused_with_the_command_that_makes_one() {
        for weak in
            ["x", "s3cret", "0123456789abcdef0123456789abcde", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
        {
            let error = read_content(weak.as_bytes(), 0o600).expect_err("weak").to_string();
            assert!(
                error.contains("openssl rand -hex 32 > ") && (weak == "x" || !error.contains(weak)),
                "{error}"
            );
        }
        for strong in ["0123456789abcdef0123456789abcdef", "gQ7yG3vN0sJb2XhLw9KtRA"] {
            assert_eq!(read_content(strong.as_bytes(), 0o600).expect("strong").reveal(), strong);
        }
    }

    #[test]
    fn a_path_that_is_not_a_file_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(directory.path()), Err(TokenError::File(PrivateFileError::NotAFile { .. }))));
        let missing = directory.path().join("missing");
        assert!(matches!(read(&missing), Err(TokenError::File(PrivateFileError::Unreadable { .. }))));
    }
}
