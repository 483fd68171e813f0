//! The data directory: its lock, its paths, and the boot id by which a crash of the machine is noticed.
//!
//! The lock is the kernel's (`flock`): it goes with the process, whatever its end, so a stale lock does not exist.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::file_names::{DATABASE, RESTORING};
use super::file_system::on_network;
use super::{LoadError, foreign_files};
use crate::storage;

/// A data directory that this process has for itself.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    // Held, not read: closing the file releases the lock.
    _lock: File,
    /// Deletes the directory of a test after its last user is gone.
    #[cfg(test)]
    _temporary: Option<tempfile::TempDir>,
}

impl DataDirectory {
    /// Makes the directory if it is missing, and takes it.
    ///
    /// # Errors
    /// It cannot be made or written, it holds other things and no store, another process has it (named by its pid), it is on a
    /// network file system, whose locks and syncs cannot be trusted, or a restore into it was broken off.
    pub fn take(path: &Path) -> Result<Self, LoadError> {
        let directory = Self::take_for_restore(path)?;
        if path.join(RESTORING).exists() {
            return Err(LoadError::Unusable(format!(
                "a restore into data directory {} was broken off: run it again, with --replace",
                path.display()
            )));
        }
        Ok(directory)
    }

    /// Likewise, even if a restore into it was broken off.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_for_restore(path: &Path) -> Result<Self, LoadError> {
        make(path).map_err(|error| refuse(path, "cannot be made", &error))?;
        let kind = on_network(path).map_err(|error| refuse(path, "cannot be examined", &error))?;
        if let Some(name) = kind {
            return Err(LoadError::Unusable(format!(
                "data directory {} is on {name}: put it on a local disk, because locks and syncs over a network cannot be trusted",
                path.display()
            )));
        }
        let foreign =
            foreign_files::list(path).map_err(|error| refuse(path, "cannot be examined", &error))?;
        if !foreign.is_empty() {
            return Err(LoadError::Foreign(format!(
                "{} has no store of ours, but other things ({}): name an empty directory with --data, or one that does not exist yet",
                path.display(),
                foreign.join(", ")
            )));
        }
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
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
        keep_private(path);
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            #[cfg(test)]
            _temporary: None,
        })
    }

    /// A new directory that is deleted together with the last store, archive or test that uses it.
    #[cfg(test)]
    pub(crate) fn temporary() -> std::sync::Arc<Self> {
        // In memory, if the machine has such a file system: these tests do not depend on the disk.
        let memory = Path::new("/dev/shm");
        let directory =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        // A reserve would only cost time.
        fs::write(directory.path().join(storage::RESERVE), "").unwrap();
        let taken = Self::take(directory.path()).unwrap();
        std::sync::Arc::new(Self { _temporary: Some(directory), ..taken })
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// The directory of container output.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
}

/// Makes a directory that is missing, for its owner alone, so that it survives a power failure together with what will be in it.
pub(crate) fn make(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Somebody else may just have made it.
        Err(_) if path.is_dir() => {}
        made => made?,
    }
    File::open(parent)?.sync_all()
}

/// Makes files private to the server's user. Earlier versions created some that others could read. The directory's own mode is left to the
/// operator.
fn keep_private(path: &Path) {
    let is_open_to_others = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.mode() & 0o077 != 0);
    let logs = path.join("logs");
    for directory in [path, &logs] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let is_ours = directory == logs || entry.file_name().to_str().is_some_and(foreign_files::is_ours);
            if is_ours
                && entry.file_type().is_ok_and(|kind| kind.is_file())
                && is_open_to_others(&entry.path())
            {
                let closed = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o600));
                if let Err(error) = closed {
                    tracing::warn!(%error, file = %entry.path().display(), "others may read it, and this cannot be changed");
                }
            }
        }
    }
    if is_open_to_others(path) {
        tracing::warn!(
            "others may look into data directory {0}; what the server writes there is for its user alone. To close it: chmod 700 {0}",
            path.display()
        );
    }
}

/// The process that holds a data directory; none if it is free. Changes nothing.
pub(crate) fn holder_of(path: &Path) -> std::io::Result<Option<String>> {
    let mut lock = match File::open(path.join("lock")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    // A shared lock does not go together with a server's. It is given back at once: only a server that starts in this very
    // instant is refused, and its supervisor tries again.
    let is_free = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
    Ok((!is_free).then(|| holder(&mut lock)))
}

/// The machine's boot id; empty where the kernel does not tell it.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn refuse(path: &Path, what: &str, error: &std::io::Error) -> LoadError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return LoadError::Unusable(storage::no_room(path));
    }
    LoadError::Unusable(format!("data directory {} {what}: {error}", path.display()))
}

fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    let read = lock.read_to_string(&mut pid);
    // The file names the process that took it last. One that has gone is not the holder: that is a server that starts at this moment, or one
    // in another container.
    let runs = |pid: &str| pid.parse::<u32>().is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
    if read.is_ok() && runs(pid.trim()) {
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
    fn a_directory_of_somebody_elses_is_refused_and_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("passwd"), "").unwrap();
        for taken in [DataDirectory::take(place.path()), DataDirectory::take_for_restore(place.path())] {
            let refusal = taken.unwrap_err().to_string();
            assert!(refusal.contains("no store of ours, but other things (passwd)"), "{refusal}");
            assert!(refusal.contains("--data"), "{refusal}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_others_could_read_become_private() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let files = ["longshore.db", "longshore.db-wal", "logs/1.seg"];
        fs::create_dir(place.path().join("logs")).unwrap();
        for file in files.iter().chain(&["jobs.yaml"]) {
            fs::write(place.path().join(file), "secret").unwrap();
            fs::set_permissions(place.path().join(file), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let _taken = DataDirectory::take(place.path()).unwrap();
        for file in files.iter().chain(&["lock"]) {
            let mode = fs::metadata(place.path().join(file)).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file}");
        }
        let mode = fs::metadata(place.path().join("jobs.yaml")).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o644, "what is not ours stays as it is");
    }

    #[test]
    fn a_new_store_is_its_owners_alone_whatever_the_directory_is() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let directory = std::sync::Arc::new(DataDirectory::take(place.path()).unwrap());
        let _open = crate::store::sqlite::open(&directory).unwrap();
        for entry in fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            let known = ["lock", "longshore.db", "longshore.db-wal", "longshore.db-shm"];
            if known.iter().any(|name| path.ends_with(name)) {
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
            }
        }
    }
}
