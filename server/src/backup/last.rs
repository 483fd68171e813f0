//! The records of the last complete and the last failed backup, in the data directory that was backed up. The process that makes a backup writes
//! them, and the server reads them for its metrics. A complete backup removes the record of the failed one. A restore moves both aside with the
//! store that it replaces: the store that is then there has had no backup yet.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::copy_owner;
use super::{BackupError, Manifest, STORE, io};
use crate::clock;
use crate::rfc3339::Time;
use crate::store::file_names::{FAILED_BACKUP, LAST_BACKUP};

/// The last complete backup of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBackup {
    /// When its copy of the store was begun: later changes are not in it.
    pub made_at: Time,
    /// The size of all its files.
    pub bytes: u64,
    /// Its directory.
    pub to: String,
}

impl LastBackup {
    /// The record of a backup that was just made.
    #[must_use]
    pub fn of(manifest: &Manifest, to: &Path) -> Self {
        Self { made_at: manifest.made_at, bytes: manifest.bytes(), to: absolute(to) }
    }

    /// Writes the record into a data directory, in place of the one before, and removes that of a failed backup.
    ///
    /// # Errors
    /// A file operation failed. The backup itself is complete.
    pub fn write(&self, data: &Path) -> Result<(), BackupError> {
        // The failure is over, even if this record cannot be written.
        let written = write(data, LAST_BACKUP, self);
        let failed = data.join(FAILED_BACKUP);
        match fs::remove_file(&failed) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                written.and(Err(io("remove", &failed)(error)))
            }
            _ => written,
        }
    }

    /// Reads the record; none if no backup was made since the store is there.
    ///
    /// # Errors
    /// It cannot be read, or is no such record.
    pub fn read(data: &Path) -> Result<Option<Self>, BackupError> {
        read(data, LAST_BACKUP)
    }
}

/// The last failed backup of a data directory, which no complete one has followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBackup {
    /// When it failed.
    pub failed_at: Time,
    /// The error, cut to 400 characters.
    pub reason: String,
    /// The directory that it should have made.
    pub to: String,
}

impl FailedBackup {
    /// The record of a backup that has failed just now.
    #[must_use]
    pub fn now(reason: &str, to: &Path) -> Self {
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        Self { failed_at: Time(clock::now().utc), reason, to: absolute(to) }
    }

    /// Writes the record into a data directory, in place of the one before. A directory without a store gets none: it was named by mistake.
    ///
    /// # Errors
    /// A file operation failed.
    pub fn write(&self, data: &Path) -> Result<(), BackupError> {
        if data.join(STORE).exists() { write(data, FAILED_BACKUP, self) } else { Ok(()) }
    }

    /// Reads the record; none if no backup has failed since the last complete one.
    ///
    /// # Errors
    /// It cannot be read, or is no such record.
    pub fn read(data: &Path) -> Result<Option<Self>, BackupError> {
        read(data, FAILED_BACKUP)
    }
}

/// Enough for a path and the error of the system.
const REASON_CHARS_MAX: usize = 400;

/// A relative path means nothing to a later reader.
fn absolute(to: &Path) -> String {
    let whole = to.canonicalize().or_else(|_| std::path::absolute(to));
    whole.unwrap_or_else(|_| to.to_owned()).display().to_string()
}

/// Writes a record into a data directory. The owner of the directory gets it, because the server reads it and root may make the backup.
fn write(data: &Path, name: &str, record: &impl Serialize) -> Result<(), BackupError> {
    let (path, draft) = (data.join(name), data.join(format!("{name}.draft")));
    let write = || {
        let text = serde_json::to_string(record)?;
        // A draft that an earlier process left there may have another owner, or be a link.
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        copy_owner(data, &draft)?;
        fs::rename(&draft, &path)
    };
    write().map_err(io("write", &path))
}

fn read<T: DeserializeOwned>(data: &Path, name: &str) -> Result<Option<T>, BackupError> {
    let path = data.join(name);
    let read = || match fs::read(&path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    read().map_err(io("read", &path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use protocol::Timestamp;

    use super::*;

    #[test]
    fn the_owner_of_the_data_directory_gets_the_record() {
        let data = tempfile::tempdir().unwrap();
        // Only root gives files away. For everybody else all owners are the same here.
        let _ = std::os::unix::fs::chown(data.path(), Some(4711), Some(4711));
        let last = LastBackup { made_at: Time(Timestamp(1)), bytes: 1, to: "/backup".into() };
        last.write(data.path()).unwrap();
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        assert_eq!(owner(&data.path().join(LAST_BACKUP)), owner(data.path()));
    }

    #[test]
    fn the_record_of_the_last_backup_replaces_the_one_before() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(LastBackup::read(data.path()).unwrap(), None);
        for bytes in [7, 8] {
            let last = LastBackup { made_at: Time(Timestamp(bytes as i64)), bytes, to: "/backup".into() };
            last.write(data.path()).unwrap();
            assert_eq!(LastBackup::read(data.path()).unwrap(), Some(last));
        }
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1, "no draft is left");
        fs::write(data.path().join(LAST_BACKUP), "{").unwrap();
        assert!(LastBackup::read(data.path()).is_err());
    }

    #[test]
    fn a_complete_backup_removes_the_record_of_a_failed_one() {
        let data = tempfile::tempdir().unwrap();
        let failed = FailedBackup::now(&"x".repeat(1_000), Path::new("b"));
        failed.write(data.path()).unwrap();
        assert_eq!(FailedBackup::read(data.path()).unwrap(), None, "there is no store");
        fs::write(data.path().join(STORE), "").unwrap();
        failed.write(data.path()).unwrap();
        assert_eq!(FailedBackup::read(data.path()).unwrap().as_ref(), Some(&failed));
        assert!(failed.reason.len() == REASON_CHARS_MAX && Path::new(&failed.to).is_absolute());

        // Also if the record of the complete one cannot be written.
        fs::create_dir_all(data.path().join(format!("{LAST_BACKUP}.draft"))).unwrap();
        let last = LastBackup { made_at: Time(Timestamp(1)), bytes: 1, to: "/backup".into() };
        last.write(data.path()).unwrap_err();
        assert_eq!(FailedBackup::read(data.path()).unwrap(), None);
        last.write(data.path()).unwrap_err();
    }
}
