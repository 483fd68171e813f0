//! Secrets of jobs: a directory with a file each, as systemd credentials and Docker secrets have it.
//!
//! Definitions name secrets; values are read for each attempt and are kept nowhere. Links may lead to other files of the directory, as
//! those of Docker and Kubernetes do, and not out of it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::secret::{SecretValue, is_secret_name};
use protocol::wire::SECRET_BYTES_MAX;

/// The directory of `--secrets-dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretsDir {
    path: PathBuf,
}

/// A secret cannot be used. No text has a part of its value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The server has no directory for secrets.
    #[error("the server has no secrets: start it with --secrets-dir")]
    NoDirectory,
    /// The name is no plain file name.
    #[error("{0:?} is no name for a secret: 1 to 64 letters, digits, dots, dashes and underscores")]
    Name(String),
    /// There is no such file.
    #[error("the server has no secret {0}: put a file with this name into --secrets-dir")]
    Missing(String),
    /// The file is a link that leads out of the directory.
    #[error("the secret {0} is a link that leads out of --secrets-dir")]
    LeadsOut(String),
    /// The file is longer than a secret may be.
    #[error("the secret {0} is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong(String),
    /// The file cannot be read.
    #[error("the secret {name} cannot be read: {cause}")]
    Unreadable {
        /// The name of the secret.
        name: String,
        /// The error of the system.
        cause: io::Error,
    },
}

impl SecretError {
    /// The same error of a secret that is shown by another name.
    pub(crate) fn with_name(self, shown: &str) -> Self {
        let name = shown.to_owned();
        match self {
            Self::NoDirectory => Self::NoDirectory,
            Self::Name(_) => Self::Name(name),
            Self::Missing(_) => Self::Missing(name),
            Self::LeadsOut(_) => Self::LeadsOut(name),
            Self::TooLong(_) => Self::TooLong(name),
            Self::Unreadable { cause, .. } => Self::Unreadable { name, cause },
        }
    }
}

/// Suspicious facts about a secret, for the person who loads a jobs file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretAdvice {
    /// Every user of the machine can read the file.
    ReadableByAll,
    /// The value is too short to be masked in output.
    NotMasked,
}

impl SecretsDir {
    /// The directory at this path. Blocks on the disk.
    ///
    /// # Errors
    /// It is no directory, or cannot be listed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        fs::read_dir(&path)?;
        Ok(Self { path })
    }

    /// Reads a secret. Blocks on the disk.
    ///
    /// # Errors
    /// It does not exist or cannot be used.
    pub fn read(&self, name: &str) -> Result<SecretValue, SecretError> {
        let mut value = Vec::new();
        let file = self.file(name)?;
        let read = file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut value);
        read.map_err(|cause| unreadable(name, cause))?;
        if value.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLong(name.to_owned()));
        }
        Ok(SecretValue(value))
    }

    /// Checks that a secret can be read. Blocks on the disk.
    ///
    /// # Errors
    /// As [`SecretsDir::read`].
    pub fn check(&self, name: &str) -> Result<Vec<SecretAdvice>, SecretError> {
        let value = self.read(name)?;
        let open = |path: &Path, bit| fs::metadata(path).is_ok_and(|found| found.mode() & bit != 0);
        let mut advice = Vec::new();
        if open(&self.path.join(name), 0o004) && open(&self.path, 0o001) {
            advice.push(SecretAdvice::ReadableByAll);
        }
        if value.0.trim_ascii_end().len() < MASKED_BYTES_MIN {
            advice.push(SecretAdvice::NotMasked);
        }
        Ok(advice)
    }

    fn file(&self, name: &str) -> Result<File, SecretError> {
        if !is_secret_name(name) {
            return Err(SecretError::Name(name.to_owned()));
        }
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::NotFound => SecretError::Missing(name.to_owned()),
            _ => unreadable(name, cause),
        };
        let root = self.path.canonicalize().map_err(failed)?;
        let path = root.join(name).canonicalize().map_err(failed)?;
        if !path.starts_with(&root) {
            return Err(SecretError::LeadsOut(name.to_owned()));
        }
        // A pipe would block.
        let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits();
        let file = fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&path);
        let file = file.map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(unreadable(name, io::Error::other("it is no plain file")));
        }
        Ok(file)
    }
}

/// Reads a secret of a server that may have none. Blocks on the disk.
///
/// # Errors
/// As [`SecretsDir::read`], or the server has no secrets.
pub fn read(dir: Option<&SecretsDir>, name: &str) -> Result<SecretValue, SecretError> {
    dir.ok_or(SecretError::NoDirectory)?.read(name)
}

/// Editors end files with a line break; a variable with one is no password.
pub(crate) fn without_line_end(SecretValue(mut value): SecretValue) -> SecretValue {
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    SecretValue(value)
}

fn unreadable(name: &str, cause: io::Error) -> SecretError {
    SecretError::Unreadable { name: name.to_owned(), cause }
}

/// Shorter values are not masked by workers: they would mask what is no secret.
pub(crate) const MASKED_BYTES_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn directory() -> (tempfile::TempDir, SecretsDir) {
        let root = tempfile::tempdir().unwrap();
        let secrets = SecretsDir::open(root.path().to_path_buf()).unwrap();
        (root, secrets)
    }

    #[test]
    fn a_secret_is_read_again_each_time() {
        let (root, secrets) = directory();
        fs::write(root.path().join("db"), "one\n").unwrap();
        assert_eq!(secrets.read("db").unwrap().0, b"one\n");
        fs::write(root.path().join("db"), "two").unwrap();
        assert_eq!(secrets.read("db").unwrap().0, b"two");
    }

    #[test]
    fn links_within_the_directory_are_followed_as_kubernetes_has_them() {
        let (root, secrets) = directory();
        fs::create_dir(root.path().join("..2026")).unwrap();
        fs::write(root.path().join("..2026/db"), "value").unwrap();
        symlink("..2026", root.path().join("..data")).unwrap();
        symlink("..data/db", root.path().join("db")).unwrap();
        assert_eq!(secrets.read("db").unwrap().0, b"value");
        symlink("/etc/hostname", root.path().join("out")).unwrap();
        assert!(matches!(secrets.read("out"), Err(SecretError::LeadsOut(_))));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let (root, secrets) = directory();
        assert!(matches!(secrets.read("none"), Err(SecretError::Missing(_))));
        assert!(matches!(secrets.read("../x"), Err(SecretError::Name(_))));
        fs::create_dir(root.path().join("dir")).unwrap();
        assert!(matches!(secrets.read("dir"), Err(SecretError::Unreadable { .. })));
        fs::write(root.path().join("long"), vec![b'x'; SECRET_BYTES_MAX + 1]).unwrap();
        assert!(matches!(secrets.read("long"), Err(SecretError::TooLong(_))));
        assert!(matches!(read(None, "db"), Err(SecretError::NoDirectory)));
    }

    #[test]
    fn a_short_or_open_secret_is_noticed() {
        let (root, secrets) = directory();
        let path = root.path().join("pin");
        fs::write(&path, "123\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secrets.check("pin").unwrap(), [SecretAdvice::NotMasked]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(secrets.check("pin").unwrap(), [SecretAdvice::ReadableByAll, SecretAdvice::NotMasked]);
    }
}
