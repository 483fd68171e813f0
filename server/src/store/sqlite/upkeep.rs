//! Upkeep of the database file: closing it, checking it after a crash. The WAL and the disk reserve have files of their own.

use std::path::{Path, PathBuf};

use protocol::Epoch;
use rusqlite::Connection;
use rusqlite::OptionalExtension;

use super::connections::{BUSY_TIMEOUT, open_reader};
use super::faults;
use super::reserve::Reserve;
use super::wal::{self, WalKeeper};
use crate::store::CommitError;

/// When upkeep is due.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) wal: WalKeeper,
    /// Changes since all of the log was in the file.
    pending: usize,
    pub(super) reserve: Reserve,
}

/// When idle, fewer changes than this are not worth the two syncs of moving them.
const IDLE_CHANGES_MIN: usize = 1_000;

/// Free pages that stay in the file: 16 MiB, some minutes of new jobs.
const FREE_PAGES_KEPT: i64 = 4_096;
/// Free pages up to this fraction of the file stay, too: 1/10.
const FREE_SHARE_KEPT: i64 = 10;
/// Pages given back in one idle step, 4 MiB: some milliseconds and one sync.
const SHRINK_PAGES: i64 = 1_024;

impl Upkeep {
    pub(super) fn new(directory: &Path, wal: WalKeeper) -> Self {
        Self { wal, pending: 0, reserve: Reserve::lay(directory) }
    }

    /// After a commit with this number of changes.
    ///
    /// # Errors
    /// The disk failed while the log was moved into the file. The commit itself is done.
    pub(super) fn committed(&mut self, connection: &Connection, changes: usize) -> Result<(), CommitError> {
        self.pending += changes;
        tolerate(self.wal.committed(connection))
    }

    /// Lays the reserve again if there is room, and gives free pages back.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn manage_space(&mut self, connection: &Connection) -> Result<(), CommitError> {
        self.reserve.renew();
        match shrink(connection).map_err(faults::of_commit) {
            Err(CommitError::Unavailable(error)) => {
                tracing::warn!(%error, "cannot give free pages of the store back");
                Ok(())
            }
            result => result,
        }
    }

    /// Nothing waits to be committed.
    ///
    /// # Errors
    /// The disk failed while the log was moved into the file.
    pub(super) fn idle(&mut self, connection: &Connection) -> Result<(), CommitError> {
        self.wal.resume_readers();
        self.manage_space(connection)?;
        if self.pending < IDLE_CHANGES_MIN {
            return Ok(());
        }
        tolerate(self.wal.idle(connection).map(|moved| {
            if moved {
                self.pending = 0;
            }
        }))
    }
}

/// Gives a few free pages at the end of the file back to the file system, if more of the file is free than new jobs need soon. Only files
/// made with `auto_vacuum` can do that (see `migrate`).
pub(super) fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    let pragma = |sql| connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let free = pragma("PRAGMA freelist_count")?;
    if free <= FREE_PAGES_KEPT || free <= pragma("PRAGMA page_count")? / FREE_SHARE_KEPT {
        return Ok(());
    }
    let pages = SHRINK_PAGES.min(free - FREE_PAGES_KEPT);
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut pages = vacuum.query([])?;
    // Each row frees a page.
    while pages.next()?.is_some() {}
    Ok(())
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

/// Moves into the file what another process left in the log. If its last sync failed, the system may show commits that are not on the disk and
/// say that nothing is left to sync: pages that are written again are synced again.
///
/// # Errors
/// The disk failed. A full disk and a reader in the way are no errors: the log is moved later.
pub(super) fn move_log(connection: &Connection) -> rusqlite::Result<()> {
    match wal::restart_wal(connection, "TRUNCATE", BUSY_TIMEOUT) {
        Ok(true) => Ok(()),
        Ok(false) => {
            tracing::warn!("somebody else reads the store: its log is moved into it later");
            Ok(())
        }
        Err(error) if faults::is_transient(&error) => {
            tracing::warn!(%error, "cannot move the log into the store; trying again later");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Leaves the file in good order, so that the next start need not suspect a crash.
pub(super) fn close(connection: &Connection, epoch: Epoch) {
    let closed = connection
        .execute("UPDATE installation SET clean = 1 WHERE epoch = ?1", [epoch.0.cast_signed()])
        .and_then(|_| wal::restart_wal(connection, "TRUNCATE", BUSY_TIMEOUT));
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
        open_reader(file)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).optional()?;
    Ok(found.filter(|line| line != "ok"))
}
