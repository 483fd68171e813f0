//! Secrets of attempts on this machine: a directory per attempt in a tmpfs, beside the worker's memory the only place of them.
//!
//! ```text
//! <tmpfs>/longshore-<uid>-<device and inode of the state directory>/<job>-<fence>/
//!   files/NAME   what a container gets at /run/secrets, readable for every user, in directories that only the worker can enter
//!   values       variables, and all values that are masked in the output
//! <tmpfs>/longshore-<uid>-<device and inode of the state directory>/pull-<number>/
//!                the Docker configuration of a pull under way, if the server has sent a login for the registry
//! ```
//! The attempt directory names this directory in its file `secrets`. If that file is there and this directory is not, the machine was
//! restarted: then the output that was not sent yet cannot be masked any more, and is withheld.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Token;
use protocol::secret::{SecretValue, SecretValues, is_secret_name};
use serde::{Deserialize, Serialize};

/// The directories of all attempts of this worker that have secrets.
#[derive(Clone, Debug)]
pub struct SecretDirs {
    root: Arc<Path>,
    /// The operator has named the tmpfs: an engine that sees other disks than this worker sees this one at the same path.
    is_named: bool,
}

/// The tmpfs cannot be used. Its text is for people.
#[derive(Debug, thiserror::Error)]
#[error("secrets cannot be kept in {}: {reason}", path.display())]
pub struct SecretDirsError {
    path: PathBuf,
    reason: String,
}

/// The content of `values`.
#[derive(Serialize, Deserialize)]
struct ValuesRecord {
    variables: Vec<(String, Vec<u8>)>,
    masked: Vec<Vec<u8>>,
}

impl SecretDirs {
    /// Uses this tmpfs, or `/dev/shm`, for the worker of this state directory.
    ///
    /// # Errors
    /// It is no tmpfs, or somebody else has made the worker's directory in it.
    pub fn open(named: Option<&Path>, state: &Path) -> Result<Self, SecretDirsError> {
        let tmpfs = named.unwrap_or(Path::new(SHARED_MEMORY));
        let refused = |reason: String| SecretDirsError { path: tmpfs.to_path_buf(), reason };
        let found = rustix::fs::statfs(tmpfs).map_err(|error| refused(error.to_string()))?;
        if found.f_type != TMPFS_MAGIC && found.f_type != RAMFS_MAGIC {
            return Err(refused("it is no tmpfs; name one with --secrets-tmpfs".into()));
        }
        // Device and inode tell state directories apart under every path, and stay the same for every version of this program.
        let state = fs::metadata(state).map_err(|error| refused(format!("{}: {error}", state.display())))?;
        let user = rustix::process::geteuid();
        let root = tmpfs.join(format!("longshore-{}-{:x}-{:x}", user.as_raw(), state.dev(), state.ino()));
        match DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused(format!("{}: {error}", root.display())));
            }
            _ => {}
        }
        // Everybody may write in /dev/shm: the directory may be a trap.
        let made = fs::symlink_metadata(&root).map_err(|error| refused(error.to_string()))?;
        if !made.is_dir() || made.uid() != user.as_raw() || made.mode() & 0o077 != 0 {
            return Err(refused(format!("{} is not a directory of this user alone", root.display())));
        }
        Ok(Self { root: root.into(), is_named: named.is_some() })
    }

    /// An engine that sees other file systems than this worker can mount the files: the operator has named the tmpfs.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.is_named
    }

    /// The directory that holds those of all attempts.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Removes the directories of attempts that `is_known` does not know: an earlier process was killed before it removed them.
    pub(crate) fn sweep(&self, is_known: impl Fn(&str) -> bool) {
        let Ok(listing) = fs::read_dir(&self.root) else { return };
        for entry in listing.flatten() {
            if entry.file_name().to_str().is_some_and(|name| !is_known(name))
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::error!(path = %entry.path().display(), %error, "cannot remove the secrets of an old attempt; remove them by hand");
            }
        }
    }

    /// The directory of this attempt, if it has one.
    pub(crate) fn find(&self, token: Token) -> Option<PathBuf> {
        Some(self.path(token)).filter(|path| path.is_dir())
    }

    /// Writes the secrets of an attempt, in place of those of an earlier start.
    pub(crate) fn write(&self, token: Token, secrets: &SecretValues) -> io::Result<()> {
        let path = self.path(token);
        remove(&path)?;
        let files = path.join(FILES);
        DirBuilder::new().recursive(true).mode(0o700).create(&files)?;
        for (name, value) in &secrets.files {
            if !is_secret_name(name) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the name of a secret is no file name",
                ));
            }
            write_file(&files.join(name), &value.0, 0o444)?;
        }
        let record = ValuesRecord {
            variables: secrets
                .variables
                .iter()
                .map(|(name, value)| (name.clone(), value.0.clone()))
                .collect(),
            masked: secrets.all().map(|value| value.0.clone()).collect(),
        };
        write_file(&path.join(VALUES), &serde_json::to_vec(&record)?, 0o400)
    }

    /// Creates an empty directory for the configuration of one pull. The next start of the worker removes it, if nobody else has.
    pub(crate) fn create_pull_dir(&self) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.root.join(format!("pull-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        remove(&path)?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// The directory of this attempt, whether it exists or not.
    pub(crate) fn path(&self, token: Token) -> PathBuf {
        self.root.join(format!("{}-{}", token.job, token.fence))
    }
}

/// The reason why an attempt with these secrets cannot run on this worker. `is_seen` if its engine sees their files.
pub(crate) fn obstacle(
    dirs: Option<&SecretDirs>,
    secrets: &SecretValues,
    is_seen: bool,
) -> Option<&'static str> {
    if secrets.is_empty() && secrets.registry.is_none() {
        return None;
    }
    match dirs {
        None => Some("this worker has no tmpfs for secrets: name one with --secrets-tmpfs"),
        Some(_) if !secrets.files.is_empty() && !is_seen => Some(
            "the job has secrets as files, and the engine of this worker sees other file systems: run the worker directly on the \
             engine's machine, mount a tmpfs of the machine or a volume in memory into its container, and name it with --secrets-tmpfs",
        ),
        Some(_) => None,
    }
}

/// Removes the directory of an attempt. A missing directory is success.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The directory with the files of an attempt; `None` if it has none.
pub(crate) fn files(path: &Path) -> Option<PathBuf> {
    let files = path.join(FILES);
    fs::read_dir(&files).ok()?.next().map(|_| files)
}

/// The path of one file of an attempt.
pub(crate) fn file(path: &Path, name: &str) -> PathBuf {
    path.join(FILES).join(name)
}

/// Reads the variables of an attempt back, and everything that is masked in its output.
pub(crate) fn read(path: &Path) -> io::Result<SecretValues> {
    let record: ValuesRecord = serde_json::from_slice(&fs::read(path.join(VALUES))?)?;
    Ok(SecretValues {
        variables: record.variables.into_iter().map(|(name, value)| (name, SecretValue(value))).collect(),
        files: Vec::new(),
        masked: record.masked.into_iter().map(SecretValue).collect(),
        registry: None,
    })
}

fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    // The creation mode is cut by the umask.
    file.set_permissions(Permissions::from_mode(mode))
}

const SHARED_MEMORY: &str = "/dev/shm";
const FILES: &str = "files";
const VALUES: &str = "values";

/// Types of file systems, as `statfs` gives them.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const RAMFS_MAGIC: rustix::fs::FsWord = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use protocol::{Fence, JobId};

    use super::*;

    fn values() -> SecretValues {
        let value = |text: &str| SecretValue(text.into());
        SecretValues {
            variables: vec![("PGPASSWORD".into(), value("hunter22"))],
            files: vec![("key".into(), value("line 1\nline 2\n"))],
            masked: vec![value("param")],
            registry: None,
        }
    }

    #[test]
    fn secrets_are_written_to_a_tmpfs_read_back_and_removed() {
        let state = tempfile::tempdir().expect("a directory");
        let dirs = SecretDirs::open(None, state.path()).expect("/dev/shm");
        let token = Token { job: JobId(7), fence: Fence(2), ..Token::default() };
        dirs.write(token, &values()).expect("written");
        let path = dirs.path(token);
        assert_eq!(dirs.find(token), Some(path.clone()));
        let key = files(&path).expect("files").join("key");
        assert_eq!(fs::read(&key).expect("read"), b"line 1\nline 2\n");
        assert_eq!(fs::metadata(&key).expect("there").mode() & 0o777, 0o444);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
        let back = read(&path).expect("read");
        assert_eq!(back.variables, values().variables);
        assert_eq!(back.masked.len(), 3);
        dirs.sweep(|name| name == "7-2");
        assert!(path.is_dir());
        dirs.sweep(|_| false);
        assert!(!path.exists());
        fs::remove_dir(&dirs.root).expect("empty");
    }

    #[test]
    fn a_directory_on_a_disk_is_refused() {
        // The procfs is no tmpfs on any machine.
        let refused = SecretDirs::open(Some(Path::new("/proc")), Path::new("/")).expect_err("no tmpfs");
        assert!(refused.to_string().contains("no tmpfs"), "{refused}");
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_not_written() {
        let state = tempfile::tempdir().expect("a directory");
        let dirs = SecretDirs::open(None, state.path()).expect("/dev/shm");
        let files = vec![("../x".into(), SecretValue::default())];
        assert!(dirs.write(Token::default(), &SecretValues { files, ..SecretValues::default() }).is_err());
        fs::remove_dir_all(&dirs.root).expect("removed");
    }
}
