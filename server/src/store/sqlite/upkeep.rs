//! What the writer does beside writing: moving the log into the file, room in reserve, closing, checking after a crash.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Epoch;
use rusqlite::Connection;
use rusqlite::OptionalExtension;

use super::faults;
use crate::store::CommitError;

/// When upkeep is due.
#[derive(Debug)]
pub(super) struct Upkeep {
    /// Changes since the log was last looked at.
    unseen: usize,
    /// Changes since the last checkpoint.
    pending: usize,
    ballast: PathBuf,
}

/// Look at the log after this many changes: each touches a handful of pages of 4 KiB, so the log cannot outgrow its bound by much.
const LOOK_EVERY: usize = 4_096;
/// The log is moved into the file when it has this many pages of 4 KiB: 64 MiB.
const LOG_PAGES_MAX: i64 = 16_384;
/// Readers that come and go without a pause keep the log from starting over: from this many pages on, new ones are made to wait.
const LOG_PAGES_FORCE: i64 = 4 * LOG_PAGES_MAX;
/// How long commits wait for the readers that are in the way then. If one stays longer, that is tried again later.
const READERS_PATIENCE: Duration = Duration::from_millis(100);
/// When idle, fewer changes than this are not worth a checkpoint's two syncs.
const IDLE_CHANGES_MIN: usize = 1_000;
/// Given back to the file system when a commit finds it full, so that what was decided can still be written.
const BALLAST_BYTES: u64 = 64 << 20;

impl Upkeep {
    pub(super) fn new(directory: &Path) -> Self {
        let upkeep = Self { unseen: 0, pending: 0, ballast: directory.join("ballast") };
        upkeep.lay_ballast();
        upkeep
    }

    /// After a commit of so many changes.
    ///
    /// # Errors
    /// The disk failed during a checkpoint. The commit itself is done.
    pub(super) fn committed(&mut self, connection: &Connection, changes: usize) -> Result<(), CommitError> {
        self.unseen += changes;
        self.pending += changes;
        if self.unseen < LOOK_EVERY {
            return Ok(());
        }
        self.unseen = 0;
        let pages = log_pages(connection, "NOOP").map_err(faults::of_commit)?;
        if pages >= LOG_PAGES_MAX {
            self.checkpoint(connection)?;
        }
        if pages >= LOG_PAGES_FORCE {
            start_log_over(connection).map_err(faults::of_commit)?;
        }
        Ok(())
    }

    /// Nothing waits to be committed.
    pub(super) fn idle(&mut self, connection: &Connection) {
        if self.pending < IDLE_CHANGES_MIN {
            return;
        }
        if let Err(error) = self.checkpoint(connection) {
            // The next commit meets the same disk and reports it.
            tracing::error!(%error, "cannot move the log into the store");
        }
        self.lay_ballast();
    }

    /// Whether there was any ballast to give back.
    pub(super) fn release_ballast(&self) -> bool {
        let released = fs::remove_file(&self.ballast).is_ok();
        if released {
            tracing::warn!("the disk is full: the reserve is in use");
        }
        released
    }

    fn checkpoint(&mut self, connection: &Connection) -> Result<(), CommitError> {
        self.pending = 0;
        // Passive: never waits for a reader. The log starts over once no reader needs it.
        log_pages(connection, "PASSIVE").map(drop).map_err(faults::of_commit)
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

/// Pages in the log after a checkpoint of this kind (`NOOP` moves nothing).
fn log_pages(connection: &Connection, kind: &str) -> rusqlite::Result<i64> {
    connection.prepare_cached(&format!("PRAGMA wal_checkpoint({kind})"))?.query_row([], |row| row.get(1))
}

/// Waits until no reader needs the log, so that the next commit begins it anew. Readers of the file itself are not in the way.
pub(super) fn start_log_over(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(READERS_PATIENCE)?;
    let done = log_pages(connection, "RESTART");
    connection.busy_timeout(super::WRITER_PATIENCE)?;
    done.map(drop)
}

/// Leaves the file in good order, so that the next start need not suspect a crash.
pub(super) fn close(connection: &Connection, epoch: Epoch) {
    let closed = connection
        .execute("UPDATE installation SET clean = 1 WHERE epoch = ?1", [epoch.0.cast_signed()])
        .and_then(|_| log_pages(connection, "TRUNCATE"));
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
