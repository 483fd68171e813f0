//! The record of the last complete backup, in the data directory that was backed up. The process that makes a backup writes it, and the server
//! reads it for its metric. A restore moves it aside with the store that it replaces: the store that is then there has had no backup yet.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::copy_owner;
use super::{BackupError, Manifest, io};
use crate::rfc3339::Time;
use crate::store::file_names::LAST_BACKUP;

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
        // A relative path means nothing to a later reader.
        let to = to.canonicalize().unwrap_or_else(|_| to.to_owned());
        Self { made_at: manifest.made_at, bytes: manifest.bytes(), to: to.display().to_string() }
    }

    /// Writes the record into a data directory, in place of the one before. The owner of the directory gets it,
    /// because the server reads it and root may make the backup.
    ///
    /// # Errors
    /// A file operation failed. The backup itself is complete.
    pub fn write(&self, data: &Path) -> Result<(), BackupError> {
        let (path, draft) = (data.join(LAST_BACKUP), data.join(format!("{LAST_BACKUP}.draft")));
        let write = || {
            let text = serde_json::to_string(self)?;
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

    /// Reads the record; none if no backup was made since the store is there.
    ///
    /// # Errors
    /// It cannot be read, or is no such record.
    pub fn read(data: &Path) -> Result<Option<Self>, BackupError> {
        let path = data.join(LAST_BACKUP);
        let read = || match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        read().map_err(io("read", &path))
    }
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
}
