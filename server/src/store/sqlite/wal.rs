//! The way of the log (SQLite's WAL) back into the file, such that commits hardly notice and the log cannot grow for ever.
//!
//! ```text
//! log:  |=== moved and synced ===|~~~ being moved, by the thread beside ~~~|+++ appended meanwhile +++|
//! ```
//! While commits go on the thread moves the log a step at a time ([`Checkpointer`]). Only a writer can begin the log anew, and only at a
//! moment when all of it is in the file. So when the log is long and little of it is left to move, the writer's own thread moves that
//! rest between two commits. An idle store moves everything and gives the log's space back.
//!
//! Two things could make the log grow without end, and past a second bound both are met. A disk that is slower than the commits: the
//! writer waits for it. Readers that come and go without a pause: new ones wait until the log was begun anew. Only a reader that we
//! have no hold on, such as a backup under way, makes it longer, until it is done.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::archive::Pool;
use super::checkpointer::Checkpointer;
use super::connections::BUSY_TIMEOUT;
use super::faults;
use super::wal_state::WalState;
use crate::store::CommitError;

/// How long the log may become, in pages of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalBounds {
    /// This many more are worth moving while commits go on.
    pub(super) step: i64,
    /// From this many on the log is begun anew as soon as no more than `rest` of it is left to move.
    pub(super) long: i64,
    /// The most that are moved between two commits: some milliseconds.
    pub(super) rest: i64,
    /// From this many on commits and reads wait. A log that was longer is cut to this when it is begun anew.
    pub(super) most: i64,
}

impl Default for WalBounds {
    fn default() -> Self {
        // 16 MiB, 64 MiB (docs/design/storage.md, S10), 4 MiB and 256 MiB.
        Self { step: 4_096, long: 16_384, rest: 1_024, most: 65_536 }
    }
}

/// Watches over the log.
#[derive(Debug)]
pub(super) struct WalKeeper {
    pub(super) bounds: WalBounds,
    checkpointer: Checkpointer,
    readers: Arc<Pool>,
    /// How many pages the log had when the thread was last asked to move it.
    asked_at: i64,
    /// Readers were in the way of beginning anew: not tried again before the log has this many pages.
    not_before: i64,
}

impl WalKeeper {
    pub(super) fn new(checkpointer: Checkpointer, readers: Arc<Pool>) -> Self {
        Self { bounds: WalBounds::default(), checkpointer, readers, asked_at: 0, not_before: 0 }
    }

    /// After a commit.
    ///
    /// # Errors
    /// The disk failed while the log was moved. The commit itself is done.
    pub(super) fn committed(&mut self, connection: &Connection) -> Result<(), CommitError> {
        let WalBounds { step, long, rest, most } = self.bounds;
        let is_idle = self.checkpointer.is_idle()?;
        let log = WalState::of(connection, "NOOP").map_err(faults::of_commit)?;
        if log.pages >= most && log.pages >= self.not_before {
            return self.force_restart(connection, log, is_idle);
        }
        if log.pages >= long && log.left() <= rest {
            return if is_idle { self.restart_wal(connection, log) } else { Ok(()) };
        }
        if log.left() >= step || log.pages >= long {
            self.request(log);
        }
        Ok(())
    }

    /// Nothing waits to be committed. Returns whether all of the log is in the file by now.
    ///
    /// # Errors
    /// The disk failed while the log was moved.
    pub(super) fn idle(&mut self, connection: &Connection) -> Result<bool, CommitError> {
        if !self.checkpointer.is_idle()? {
            return Ok(false);
        }
        let log = WalState::of(connection, "NOOP").map_err(faults::of_commit)?;
        if log.left() > self.bounds.rest {
            self.request(log);
            return Ok(false);
        }
        restart_wal(connection, "TRUNCATE", READERS_TIMEOUT).map_err(faults::of_commit)
    }

    /// Lets reads begin that waited for the log to be begun anew.
    pub(super) fn resume_readers(&self) {
        self.readers.resume();
    }

    /// Waits until nothing is being moved.
    ///
    /// # Errors
    /// The disk failed while the log was moved.
    pub(super) fn wait_idle(&mut self) -> Result<(), CommitError> {
        self.checkpointer.wait_idle()
    }

    fn request(&mut self, log: WalState) {
        if self.checkpointer.request() {
            self.asked_at = log.pages;
        }
    }

    /// The log is longer than it may be: commits wait for the disk, and new reads for the old ones. What a backup has kept from being
    /// moved may be much: it is moved beside the commits, as long as those do not add as much again.
    fn force_restart(
        &mut self,
        connection: &Connection,
        log: WalState,
        is_idle: bool,
    ) -> Result<(), CommitError> {
        let most = self.bounds.most;
        self.request(log);
        if (is_idle && log.left() > most) || (!is_idle && log.pages < self.asked_at + most) {
            return Ok(());
        }
        self.readers.pause();
        let restarted = self.checkpointer.wait_idle().and_then(|()| self.restart_wal(connection, log));
        if restarted.is_err() {
            // On a full disk this goes on for long.
            self.readers.resume();
        }
        restarted?;
        if self.not_before > 0 && self.readers.all_idle() {
            let bytes = log.pages * 4_096;
            tracing::warn!(bytes, "somebody else reads the store, a backup perhaps: its log grows meanwhile");
            self.readers.resume();
            self.not_before = log.pages + self.bounds.long;
        }
        Ok(())
    }

    fn restart_wal(&mut self, connection: &Connection, log: WalState) -> Result<(), CommitError> {
        if log.pages < self.not_before {
            return Ok(());
        }
        if restart_wal(connection, "RESTART", READERS_TIMEOUT).map_err(faults::of_commit)? {
            self.not_before = 0;
            self.readers.resume();
        } else {
            self.not_before = log.pages + self.bounds.rest;
        }
        Ok(())
    }
}

/// Moves all of the log and waits for the readers that need it, so that the next commit begins it anew. Readers of the file itself
/// are not in the way. Whether that was done in time.
pub(super) fn restart_wal(connection: &Connection, kind: &str, timeout: Duration) -> rusqlite::Result<bool> {
    connection.busy_timeout(timeout)?;
    let log = WalState::of(connection, kind);
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(log?.was_not_blocked)
}

/// How long commits wait for readers that are in the way. Most are done within a millisecond; for the others there is another time.
const READERS_TIMEOUT: Duration = Duration::from_millis(5);
