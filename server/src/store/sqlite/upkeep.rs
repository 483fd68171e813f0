//! What the writer does beside writing: room in reserve, closing, checking after a crash. The log has a file of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use protocol::Epoch;
use rusqlite::Connection;
use rusqlite::OptionalExtension;

use super::log::{self, LogKeeper};
use crate::storage::START_BYTES;
use crate::store::CommitError;

/// When upkeep is due.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) log: LogKeeper,
    /// Changes since all of the log was in the file.
    pending: usize,
    ballast: PathBuf,
}

/// When idle, fewer changes than this are not worth the two syncs of moving them.
const IDLE_CHANGES_MIN: usize = 1_000;
/// Given back to the file system when a commit finds it full, so that what was decided can still be written.
const BALLAST_BYTES: u64 = 64 << 20;
/// The name of the file that sets it aside.
const BALLAST: &str = "ballast";

impl Upkeep {
    pub(super) fn new(directory: &Path, log: LogKeeper) -> Self {
        let upkeep = Self { log, pending: 0, ballast: directory.join(BALLAST) };
        upkeep.lay_ballast();
        upkeep
    }

    /// After a commit of so many changes.
    ///
    /// # Errors
    /// The disk failed while the log was moved into the file. The commit itself is done.
    pub(super) fn committed(&mut self, connection: &Connection, changes: usize) -> Result<(), CommitError> {
        self.pending += changes;
        tolerate(self.log.committed(connection))
    }

    /// Nothing waits to be committed.
    ///
    /// # Errors
    /// The disk failed while the log was moved into the file.
    pub(super) fn idle(&mut self, connection: &Connection) -> Result<(), CommitError> {
        if self.pending < IDLE_CHANGES_MIN {
            return Ok(());
        }
        tolerate(self.log.idle(connection).map(|moved| {
            if moved {
                self.pending = 0;
            }
        }))?;
        self.lay_ballast();
        Ok(())
    }

    /// Whether there was any ballast to give back.
    pub(super) fn release_ballast(&self) -> bool {
        let released = fs::remove_file(&self.ballast).is_ok();
        if released {
            tracing::warn!("the disk is full: the reserve is in use");
        }
        released
    }

    /// Sets space aside again, if there is plenty.
    fn lay_ballast(&self) {
        if self.ballast.exists() || !self.has_plenty() {
            return;
        }
        let laid = File::create_new(&self.ballast).and_then(|file| {
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST_BYTES)?)
        });
        if let Err(error) = laid {
            // A reserve is good to have, no more: some file systems cannot set space aside.
            tracing::debug!(%error, "no reserve of disk space");
            let _ = fs::remove_file(&self.ballast);
        }
    }

    fn has_plenty(&self) -> bool {
        let parent = self.ballast.parent().unwrap_or(Path::new("."));
        rustix::fs::statvfs(parent)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > 16 * BALLAST_BYTES)
    }
}

/// A start needs some room before it can do anything, even to take in what workers report: it has the reserve, if there is one.
pub(super) fn make_room(directory: &Path) {
    let is_short = rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < START_BYTES);
    if is_short && fs::remove_file(directory.join(BALLAST)).is_ok() {
        tracing::warn!("the disk is full: the reserve is in use");
    }
}

/// If there is no room to move the log, that has time: what was committed is safe in it.
fn tolerate(moved: Result<(), CommitError>) -> Result<(), CommitError> {
    match moved {
        Err(CommitError::Unavailable(error)) => {
            tracing::warn!(%error, "cannot move the log into the store");
            Ok(())
        }
        result => result,
    }
}

/// Leaves the file in good order, so that the next start need not suspect a crash.
pub(super) fn close(connection: &Connection, epoch: Epoch) {
    let closed = connection
        .execute("UPDATE installation SET clean = 1 WHERE epoch = ?1", [epoch.0.cast_signed()])
        .and_then(|_| log::begin_anew(connection, "TRUNCATE", super::WRITER_PATIENCE));
    if let Err(error) = closed {
        tracing::warn!(%error, "the store was not closed in good order; the next start recovers it");
    }
}

/// Reads the whole file on a thread of its own and says what is wrong with it. The machine crashed: disks that lie show it now.
pub(super) fn check_in_background(file: PathBuf) {
    let check = move || match first_fault(&file) {
        Ok(None) => tracing::info!(file = %file.display(), "the store is whole after the machine's crash"),
        Ok(Some(fault)) => {
            tracing::error!(file = %file.display(), fault, "the store is damaged: stop the server and restore a backup");
        }
        Err(error) => tracing::warn!(%error, "the store could not be checked"),
    };
    if let Err(error) = std::thread::Builder::new().name("store-check".to_owned()).spawn(check) {
        tracing::warn!(%error, "the store could not be checked");
    }
}

fn first_fault(file: &Path) -> rusqlite::Result<Option<String>> {
    let found: Option<String> =
        super::open_reader(file)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).optional()?;
    Ok(found.filter(|line| line != "ok"))
}
