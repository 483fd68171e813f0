//! The data directory: who has it, where things are in it, and whether the machine crashed since it was last used.
//!
//! The lock is the kernel's (`flock`): it goes with the process, whatever its end, so a stale lock does not exist.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statfs};

use super::LoadError;

/// A data directory that this process has for itself.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    // Held, not read: closing it gives the directory back.
    _lock: File,
}

impl DataDirectory {
    /// Makes the directory if it is missing, and takes it.
    ///
    /// # Errors
    /// It cannot be made or written, another process has it (named by its pid), or it is on a network file system, whose locks and
    /// syncs cannot be trusted.
    pub fn take(path: &Path) -> Result<Self, LoadError> {
        fs::create_dir_all(path).map_err(|error| refuse(path, "cannot be made", &error))?;
        let kind = statfs(path).map_err(|error| refuse(path, "cannot be examined", &error.into()))?.f_type;
        if let Some(name) = network_file_system(u64::try_from(kind).unwrap_or(0)) {
            return Err(LoadError::Unusable(format!(
                "data directory {} is on {name}: put it on a local disk, because locks and syncs over a network cannot be trusted",
                path.display()
            )));
        }
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(|error| refuse(path, "is not writable", &error))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(LoadError::Unusable(format!(
                "data directory in use by {}: {}",
                holder(&mut lock),
                path.display()
            )));
        }
        write_holder(&mut lock).map_err(|error| refuse(path, "is not writable", &error))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join("longshore.db")
    }

    /// Where container output is.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
}

/// Which boot of the machine this is; empty where that is not told.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn refuse(path: &Path, what: &str, error: &std::io::Error) -> LoadError {
    LoadError::Unusable(format!("data directory {} {what}: {error}", path.display()))
}

fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    let read = lock.read_to_string(&mut pid);
    if read.is_ok() && !pid.trim().is_empty() {
        format!("pid {}", pid.trim())
    } else {
        "another process".to_owned()
    }
}

fn write_holder(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

/// The name of a file system that is known to be on another machine. Magic numbers: statfs(2), linux/magic.h.
const fn network_file_system(kind: u64) -> Option<&'static str> {
    // The kernel's type is signed on some machines: only the low 32 bits mean something.
    match kind & 0xFFFF_FFFF {
        0x6969 => Some("NFS"),
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => Some("an SMB share"),
        0x5346_414F | 0x6B41_4653 => Some("AFS"),
        0x00C3_6400 => Some("Ceph"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x0102_1997 => Some("9P"),
        0x7461_636F => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_has_it() {
        let place = tempfile::tempdir().unwrap();
        let first = DataDirectory::take(place.path()).unwrap();
        let refusal = DataDirectory::take(place.path()).unwrap_err().to_string();
        assert!(
            refusal.starts_with(&format!("data directory in use by pid {}", std::process::id())),
            "{refusal}"
        );
        drop(first);
        DataDirectory::take(place.path()).expect("it was given back");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("data");
        fs::write(&file, "").unwrap();
        let refusal = DataDirectory::take(&file).unwrap_err().to_string();
        assert!(refusal.contains("data directory") && refusal.contains("cannot be made"), "{refusal}");
    }

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xFFFF_FFFF_FF53_4D42), Some("an SMB share"));
        assert_eq!(network_file_system(0xEF53), None, "ext4 is local");
    }
}
