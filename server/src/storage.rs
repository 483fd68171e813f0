//! Watches the free space of the disk: below the low-water mark the server takes reports, but no new jobs.
//!
//! A watcher measures every few seconds; the handlers read its last result.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::backup::{BackupError, FailedBackup, LastBackup};

/// The file system of the data directory at the last measurement.
#[derive(Debug)]
pub struct Storage {
    directory: PathBuf,
    low: AtomicBool,
    /// The record of the last complete backup could not be read the last time.
    backup_unreadable: AtomicBool,
    /// Likewise that of the last failed one.
    failure_unreadable: AtomicBool,
}

impl Storage {
    /// Watches the file system of this directory; it counts as having room until the first measurement.
    #[must_use]
    pub fn of(directory: &Path) -> Arc<Self> {
        Arc::new(Self {
            directory: directory.to_owned(),
            low: AtomicBool::new(false),
            backup_unreadable: AtomicBool::new(false),
            failure_unreadable: AtomicBool::new(false),
        })
    }

    /// True if submissions are to be refused.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Bytes of the database and of its write-ahead log; 0 for a file that is not there. Blocks on the disk.
    #[must_use]
    pub fn database_bytes(&self) -> (u64, u64) {
        let bytes = |name| std::fs::metadata(self.directory.join(name)).map_or(0, |file| file.len());
        (bytes("longshore.db"), bytes("longshore.db-wal"))
    }

    /// The time and the bytes of the last backup; none if none was made, or its record cannot be used: the log and `longshore doctor`
    /// tell which. Blocks on the disk.
    #[must_use]
    pub fn last_backup(&self) -> Option<(Timestamp, u64)> {
        let last = noted(LastBackup::read(&self.directory), &self.backup_unreadable)?;
        Some((last.made_at.0, last.bytes))
    }

    /// The time of the last failed backup, if no complete one followed; none as well if its record cannot be used. Blocks on the disk.
    #[must_use]
    pub fn failed_backup(&self) -> Option<Timestamp> {
        let failed = noted(FailedBackup::read(&self.directory), &self.failure_unreadable)?;
        Some(failed.failed_at.0)
    }

    /// Stores a measurement in bytes and logs a change.
    pub fn note(&self, free: u64, total: u64) {
        let low = free < low_water_mark(total);
        let was_low = self.low.swap(low, Ordering::Relaxed);
        let directory = self.directory.display();
        match (was_low, low) {
            (false, true) => {
                tracing::error!(%directory, free, total, "disk nearly full; submissions are refused, schedules and hooks go on")
            }
            (true, false) => {
                tracing::info!(%directory, free, total, "disk has room again; new jobs are accepted")
            }
            _ => {}
        }
    }

    /// Measures every few seconds until it is cancelled.
    pub async fn watch(self: Arc<Self>, until: CancellationToken) {
        loop {
            let storage = self.clone();
            match tokio::task::spawn_blocking(move || storage.look()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "cannot measure the free space of the disk"),
                Err(error) => tracing::error!(%error, "cannot measure the free space of the disk"),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = until.cancelled() => return,
            }
        }
    }

    /// Measures. Blocks on the disk. The space of the reserve file never counts as free, even while the file is used up.
    fn look(&self) -> io::Result<()> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        let (free, total) = (bytes(disk.f_bavail), bytes(disk.f_blocks));
        let is_laid = self.directory.join(RESERVE).exists();
        self.note(if is_laid { free } else { free.saturating_sub(reserve(total)) }, total);
        Ok(())
    }
}

/// The record of a backup. Each scrape reads it, so an error is logged once.
fn noted<T>(read: Result<Option<T>, BackupError>, unreadable: &AtomicBool) -> Option<T> {
    let was_unreadable = unreadable.swap(read.is_err(), Ordering::Relaxed);
    if let Err(error) = &read
        && !was_unreadable
    {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "cannot read the record of the last backup; its metric is 0 and its alert is off: the next longshore backup writes it again"
        );
    }
    read.ok().flatten()
}

/// The error text for a start on a full disk, with the remedy.
pub(crate) fn no_room(directory: &Path) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let (free, needed) = match rustix::fs::statvfs(directory) {
        Ok(disk) => {
            let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
            let jobs = low_water_mark(bytes(disk.f_blocks));
            (
                format!("{} MiB free", mib(bytes(disk.f_bavail))),
                format!(", and {} MiB to take jobs", mib(jobs)),
            )
        }
        Err(error) => (format!("room that cannot be seen ({error})"), String::new()),
    };
    format!(
        "no room on the disk of data directory {}: it has {free}; the server needs {} MiB to start{needed}: make room there (replaced-* of an earlier restore, backups, \
         other programs' files; never longshore.db* or logs), and start it again; nothing is lost",
        directory.display(),
        mib(START_BYTES)
    )
}

/// Bytes for the log's index and a few commits.
pub(crate) const START_BYTES: u64 = 8 << 20;

/// Bytes below which no jobs are accepted: the smaller of 5 % and 512 MiB.
pub(crate) const fn low_water_mark(total: u64) -> u64 {
    let share = total / 20;
    if share < LOW_BYTES { share } else { LOW_BYTES }
}

const LOW_BYTES: u64 = 512 << 20;

/// The file that reserves space for reports on a full disk.
pub(crate) const RESERVE: &str = "ballast";

/// The size of the reserve: 64 MiB, of a small disk a quarter.
pub(crate) const fn reserve(total: u64) -> u64 {
    let share = total / 4;
    if share < RESERVE_BYTES { share } else { RESERVE_BYTES }
}

const RESERVE_BYTES: u64 = 64 << 20;

/// A disk that fills at 100 MiB a second loses less than half of the mark between two measurements.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_five_percent_of_a_small_disk_and_half_a_gibibyte_of_a_large_one() {
        let storage = Storage::of(Path::new("/"));
        for (free, total, low) in [
            (5 << 20, 100 << 20, false),
            ((5 << 20) - 1, 100 << 20, true),
            (512 << 20, 1 << 40, false),
            ((512 << 20) - 1, 1 << 40, true),
            (0, 0, false),
        ] {
            storage.note(free, total);
            assert_eq!(storage.is_low(), low, "{free} of {total}");
        }
    }

    #[test]
    fn a_real_disk_can_be_looked_at() {
        let place = tempfile::tempdir().unwrap();
        Storage::of(place.path()).look().unwrap();
        Storage::of(&place.path().join("missing")).look().unwrap_err();
    }
}
