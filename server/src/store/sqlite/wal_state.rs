//! The state of the log (SQLite's WAL), as a checkpoint reports it.

use rusqlite::Connection;

/// Pages in the log, and how many of them are in the file as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalState {
    pub(super) pages: i64,
    pub(super) copied_pages: i64,
    /// True if nothing blocked the requested checkpoint. A passive one is not blocked by readers, and may still leave pages.
    pub(super) was_not_blocked: bool,
}

impl WalState {
    /// Pages that are in the log only.
    pub(super) const fn left(self) -> i64 {
        self.pages - self.copied_pages
    }

    /// After a checkpoint of this kind (`NOOP` copies nothing).
    pub(super) fn of(connection: &Connection, kind: &str) -> rusqlite::Result<Self> {
        connection.prepare_cached(&format!("PRAGMA wal_checkpoint({kind})"))?.query_row([], |row| {
            Ok(Self {
                was_not_blocked: row.get::<_, i64>(0)? == 0,
                pages: row.get(1)?,
                copied_pages: row.get(2)?,
            })
        })
    }
}
