//! The state of the log (SQLite's WAL), as a checkpoint reports it.

use rusqlite::Connection;

/// How much is in the log, and how much of that is in the file as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalState {
    pub(super) pages: i64,
    pub(super) moved_pages: i64,
    /// True if the requested checkpoint was completed.
    pub(super) is_done: bool,
}

impl WalState {
    /// Pages that are in the log only.
    pub(super) const fn left(self) -> i64 {
        self.pages - self.moved_pages
    }

    /// After a checkpoint of this kind (`NOOP` moves nothing).
    pub(super) fn of(connection: &Connection, kind: &str) -> rusqlite::Result<Self> {
        connection.prepare_cached(&format!("PRAGMA wal_checkpoint({kind})"))?.query_row([], |row| {
            Ok(Self { is_done: row.get::<_, i64>(0)? == 0, pages: row.get(1)?, moved_pages: row.get(2)? })
        })
    }
}
