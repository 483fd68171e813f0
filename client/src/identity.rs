//! The state directory: the identity of this worker, and the lock that makes it unique.
//!
//! ```text
//! lock         held for as long as the process lives; the pid is in it
//! secret       32 random bytes: proof of identity, and readable for its owner only
//! incarnation  how often a worker was started here
//! membership   which installation it has joined, and as whom
//! contact      when the server was heard last, in the uptime of which boot; only while something depends on it
//! ```
//! Each file is replaced as a whole, so a crash leaves the old content or the new one. All but the last are synced. The incarnation has a fixed
//! length, and is written in place if the disk is full.

mod incarnation;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::{ClusterId, Incarnation, Uptime, WorkerId};
use rand::TryRng;
use rand::rngs::SysRng;

use crate::latest_file::{AtClose, FileWriter};
use crate::runtime::Membership;

/// The identity of this worker. The state directory is locked as long as this lives.
#[derive(Debug)]
pub struct Identity {
    dir: PathBuf,
    secret: [u8; 32],
    incarnation: Incarnation,
    membership: Option<Membership>,
    _lock: File,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Another process has locked it.
    #[error("state directory {} in use by pid {pid}; give each worker of a host its own with --state-dir", dir.display())]
    InUse {
        /// Path of the directory.
        dir: PathBuf,
        /// Process number that the other worker has written into the lock file.
        pid: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file has invalid content.
    #[error("{} is damaged ({what}); restore it, or remove the whole state directory and join with --rejoin", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random(#[source] rand::rngs::SysError),
}

impl Identity {
    /// Locks the state directory, creates it if needed, and counts this start.
    ///
    /// # Errors
    /// Another worker has locked it, or it cannot be read and written.
    pub fn open(dir: &Path) -> Result<Self, IdentityError> {
        make(dir)?;
        let lock = lock(dir)?;
        let secret = match read(&dir.join(SECRET))? {
            Some(bytes) => {
                bytes.try_into().map_err(|_| damaged(&dir.join(SECRET), "it is not 32 bytes long"))?
            }
            None => new_secret(dir)?,
        };
        let before = number(&dir.join(INCARNATION))?.unwrap_or(0);
        let incarnation =
            before.checked_add(1).ok_or_else(|| damaged(&dir.join(INCARNATION), "it is at its end"))?;
        incarnation::store(&dir.join(INCARNATION), incarnation)?;
        let membership = membership(&dir.join(MEMBERSHIP))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            secret,
            incarnation: Incarnation(incarnation),
            membership,
            _lock: lock,
        })
    }

    /// Takes the first free `slot-N` below `parent`: several workers of one host share it, and each keeps its identity over restarts
    /// although its host name may change.
    ///
    /// # Errors
    /// All are locked, or they cannot be read and written.
    pub fn open_shared(parent: &Path) -> Result<Self, IdentityError> {
        let mut last = None;
        for slot in 0..SHARERS_MAX {
            match Self::open(&parent.join(format!("slot-{slot}"))) {
                Err(error @ IdentityError::InUse { .. }) => last = Some(error),
                opened => return opened,
            }
        }
        Err(last.unwrap_or_else(|| damaged(parent, "it has no room for anybody")))
    }

    /// Path of the state directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The secret that proves the identity to the server.
    #[must_use]
    pub const fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Replaces the secret, and forgets the membership: the server has revoked the old one.
    ///
    /// # Errors
    /// A file cannot be written; secret and membership in memory are those on the disk.
    pub fn renew(&mut self) -> Result<(), IdentityError> {
        let path = self.dir.join(MEMBERSHIP);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(io_error(&path, cause)),
            _ => self.membership = None,
        }
        self.secret = new_secret(&self.dir)?;
        Ok(())
    }

    /// The number of this start of the worker.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The installation that it has joined, if any.
    #[must_use]
    pub const fn membership(&self) -> Option<Membership> {
        self.membership
    }

    /// Path of the file with the membership.
    #[must_use]
    pub fn membership_path(&self) -> PathBuf {
        self.dir.join(MEMBERSHIP)
    }

    /// The recorded last contact, if the machine was not booted since.
    #[must_use]
    pub fn contact(&self) -> Option<Uptime> {
        read_uptime(&self.contact_path()).ok()?
    }

    /// Path of the file with the last contact with the server. It need not survive a reboot.
    #[must_use]
    pub fn contact_path(&self) -> PathBuf {
        self.dir.join(CONTACT)
    }
}

/// Reads an instant that [`write_uptime`] wrote, if the machine was not booted since.
pub(crate) fn read_uptime(path: &Path) -> io::Result<Option<Uptime>> {
    let text = fs::read_to_string(path)?;
    let kept = text.trim().split_once(' ').filter(|(boot, _)| *boot == this_boot());
    Ok(kept.and_then(|(_, nanos)| nanos.parse().ok()).map(Uptime))
}

/// Writes an instant with the id of the boot. It is not synced, because it means nothing after a reboot.
pub(crate) fn write_uptime(path: &Path, at: Uptime) -> io::Result<()> {
    put(path, format!("{} {}\n", this_boot(), at.0).as_bytes(), |_| Ok(()))
}

/// Writes the file with the last contact. What is on the disk is never later than the last contact: a process that reads an earlier one
/// only stops sooner.
pub(crate) const CONTACT_WRITER: FileWriter<Uptime, io::Error> = FileWriter {
    write: write_uptime,
    if_it_fails: "a restart may stop attempts with self_fence, because it does not know the last contact with the server",
    at_close: AtClose::Keep,
};

/// Writes and syncs the file with the membership. The server repeats a membership with each Welcome.
pub(crate) const MEMBERSHIP_WRITER: FileWriter<Membership, IdentityError> = FileWriter {
    write: write_membership,
    if_it_fails: "the membership is recorded at the next connection, and until then a restarted worker lists its containers only after it has joined",
    at_close: AtClose::Keep,
};

fn write_membership(path: &Path, membership: Membership) -> Result<(), IdentityError> {
    replace(path, format!("{} {}\n", membership.cluster, membership.worker).as_bytes())
}

/// The kernel's id of this boot.
fn this_boot() -> String {
    fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn make(dir: &Path) -> Result<(), IdentityError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|cause| io_error(dir, cause))
}

fn lock(dir: &Path) -> Result<File, IdentityError> {
    let path = dir.join(LOCK);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|cause| io_error(&path, cause))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let pid = pid.trim();
            let pid = if pid.is_empty() { "unknown" } else { pid };
            return Err(IdentityError::InUse { dir: dir.to_path_buf(), pid: pid.to_owned() });
        }
        Err(TryLockError::Error(cause)) => return Err(io_error(&path, cause)),
    }
    let pid = format!("{}\n", std::process::id());
    // Over the old text, because a full disk has room for that. If it cannot be written, only an error text names no process, or another one.
    let _ = file.write_all(pid.as_bytes()).and_then(|()| file.set_len(pid.len() as u64));
    Ok(file)
}

fn new_secret(dir: &Path) -> Result<[u8; 32], IdentityError> {
    let mut secret = [0; 32];
    SysRng.try_fill_bytes(&mut secret).map_err(IdentityError::Random)?;
    replace(&dir.join(SECRET), &secret)?;
    Ok(secret)
}

/// The installation that the worker with this state directory has joined, as far as its files tell. Locks nothing.
///
/// # Errors
/// The file with the membership cannot be read, or is damaged.
pub fn recorded_membership(dir: &Path) -> Result<Option<Membership>, IdentityError> {
    membership(&dir.join(MEMBERSHIP))
}

fn membership(path: &Path) -> Result<Option<Membership>, IdentityError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let parsed = text.trim().split_once(' ').and_then(|(cluster, worker)| {
        Some(Membership {
            cluster: ClusterId(u32::from_str_radix(cluster, 16).ok()?),
            worker: WorkerId(worker.parse().ok()?),
        })
    });
    parsed.map(Some).ok_or_else(|| damaged(path, "it does not name a cluster and a worker"))
}

fn number(path: &Path) -> Result<Option<u64>, IdentityError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let parsed = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    parsed.map(Some).ok_or_else(|| damaged(path, "it is not a number"))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, IdentityError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(io_error(path, cause)),
    }
}

/// Replaces a file, readable for its owner only, and syncs it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let written = put(path, bytes, File::sync_all)
        .and_then(|()| path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()));
    written.map_err(|cause| io_error(path, cause))
}

fn put(path: &Path, bytes: &[u8], sync_file: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    sync_file(&file)?;
    fs::rename(&temporary, path)
}

fn io_error(path: &Path, cause: io::Error) -> IdentityError {
    IdentityError::Io { path: path.to_path_buf(), cause }
}

fn damaged(path: &Path, what: &'static str) -> IdentityError {
    IdentityError::Damaged { path: path.to_path_buf(), what }
}

const LOCK: &str = "lock";
const SECRET: &str = "secret";
const INCARNATION: &str = "incarnation";
const MEMBERSHIP: &str = "membership";
const CONTACT: &str = "contact";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// More workers than any host runs.
const SHARERS_MAX: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn joined() -> Membership {
        Membership { cluster: ClusterId(0xdead_beef), worker: WorkerId(7) }
    }

    #[test]
    fn identity_survives_a_restart_and_starts_are_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Identity::open(dir.path()).expect("opens");
        write_membership(&first.membership_path(), joined()).expect("writes");
        let secret = first.secret();
        assert_eq!(first.incarnation(), Incarnation(1));
        drop(first);

        let second = Identity::open(dir.path()).expect("opens again");

        assert_eq!(second.secret(), secret);
        assert_eq!(second.incarnation(), Incarnation(2));
        assert_eq!(second.membership(), Some(joined()));
    }

    #[test]
    fn the_last_contact_survives_a_restart_but_not_a_boot() {
        let dir = tempfile::tempdir().expect("a directory");
        let identity = Identity::open(dir.path()).expect("opens");
        assert_eq!(identity.contact(), None);
        write_uptime(&identity.contact_path(), Uptime(5)).expect("writes");
        write_uptime(&identity.contact_path(), Uptime(7)).expect("writes");
        drop(identity);
        let identity = Identity::open(dir.path()).expect("opens again");
        assert_eq!(identity.contact(), Some(Uptime(7)));
        for other in ["another-boot 7\n", "7", ""] {
            fs::write(dir.path().join(CONTACT), other).expect("writes");
            assert_eq!(identity.contact(), None, "{other:?}");
        }
    }

    #[test]
    fn two_workers_cannot_have_one_state_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let _first = Identity::open(dir.path()).expect("opens");
        let error = Identity::open(dir.path()).expect_err("taken").to_string();
        assert!(error.contains(&format!("in use by pid {}", std::process::id())), "{error}");
    }

    #[test]
    fn workers_that_share_a_directory_take_the_first_free_slot() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Identity::open_shared(dir.path()).expect("opens");
        let second = Identity::open_shared(dir.path()).expect("opens");
        assert_ne!(first.secret(), second.secret());
        let secret = first.secret();
        drop(first);
        let again = Identity::open_shared(dir.path()).expect("opens");
        assert_eq!(again.secret(), secret);
        assert_eq!(again.dir(), dir.path().join("slot-0"));
    }

    #[test]
    fn the_secret_is_nobody_elses_to_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let identity = Identity::open(dir.path()).expect("opens");
        let mode = fs::metadata(dir.path().join(SECRET)).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(identity.secret(), [0; 32]);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        for (file, text) in [(SECRET, "short"), (INCARNATION, "many"), (MEMBERSHIP, "?")] {
            drop(Identity::open(dir.path()).expect("opens"));
            let path = dir.path().join(file);
            let before = fs::read(&path).ok();
            fs::write(&path, text).expect("writes");
            let error = Identity::open(dir.path()).expect_err(file).to_string();
            assert!(error.contains(file) && error.contains("damaged"), "{error}");
            match before {
                Some(before) => fs::write(&path, before).expect("writes"),
                None => fs::remove_file(&path).expect("removes"),
            }
        }
    }
}
