//! `backup.json`: what a backup is, and what it consists of.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{BackupError, LOGS, STORE, io};
use crate::rfc3339::Time;
use crate::store::sqlite::copy::Identity;

/// The content of `backup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub format: u32,
    /// When the copy of the store was begun.
    pub made_at: Time,
    /// The version of the program that made it.
    pub longshore: String,
    /// The installation, as it stands in the names of containers.
    pub cluster: String,
    /// The schema of the store.
    pub schema: usize,
    /// The last commit that is in it.
    pub commit: u64,
    /// The highest number of a job in it.
    pub last_job: u64,
    /// How many jobs had not ended.
    pub live_jobs: u64,
    /// Every file beside this one.
    pub files: Vec<FileEntry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its path within the backup.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its content.
    pub sha256: String,
}

impl Manifest {
    pub(super) const NAME: &str = "backup.json";
    const FORMAT: u32 = 1;

    pub(super) fn new(made_at: Time, of: Identity, files: Vec<FileEntry>) -> Self {
        Self {
            format: Self::FORMAT,
            made_at,
            longshore: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: of.cluster.to_string(),
            schema: of.schema,
            commit: of.group.0,
            last_job: of.last_job.0,
            live_jobs: of.live_jobs,
            files,
        }
    }

    /// How many bytes all files have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), BackupError> {
        let path = directory.join(Self::NAME);
        let text = serde_json::to_string_pretty(self).map_err(|error| io("write", &path)(error.into()))?;
        let write = || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            writeln!(file, "{text}")?;
            file.sync_all()
        };
        write().map_err(io("write", &path))
    }

    /// Reads what a backup says of itself.
    ///
    /// # Errors
    /// There is no backup there, or one of a newer format.
    pub fn read(directory: &Path) -> Result<Self, BackupError> {
        let path = directory.join(Self::NAME);
        let shown = directory.display();
        let text = std::fs::read_to_string(&path).map_err(|error| {
            BackupError::NoBackup(format!(
                "{shown} is no backup, or an unfinished one: {}: {error}",
                path.display()
            ))
        })?;
        let manifest: Self = serde_json::from_str(&text)
            .map_err(|error| BackupError::NoBackup(format!("{} cannot be read: {error}", path.display())))?;
        if manifest.format != Self::FORMAT {
            return Err(BackupError::NoBackup(format!(
                "{shown} is a backup of format {}, written by a newer Longshore; this one knows format {}",
                manifest.format,
                Self::FORMAT
            )));
        }
        match manifest.files.iter().find(|file| !is_ours(&file.name)) {
            None => Ok(manifest),
            // Names become paths: nothing outside of the backup is ever read, or written, on its word.
            Some(file) => Err(BackupError::NoBackup(format!(
                "{} names a file that no backup has: {:?}",
                path.display(),
                file.name
            ))),
        }
    }
}

fn is_ours(name: &str) -> bool {
    let is_segment = |name: &str| {
        name.rsplit_once('.').is_some_and(|(number, kind)| {
            !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
                && matches!(kind, "seg" | "idx")
        })
    };
    name == STORE || name.split_once('/').is_some_and(|(room, name)| room == LOGS && is_segment(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_become_paths() {
        assert!(is_ours("longshore.db") && is_ours("logs/0000000001.seg") && is_ours("logs/0000000001.idx"));
        for name in [
            "",
            "logs",
            "logs/",
            "../longshore.db",
            "logs/../longshore.db",
            "logs/a.seg",
            "logs/.seg",
            "/etc/passwd",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
