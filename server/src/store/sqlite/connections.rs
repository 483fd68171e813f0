//! Connections to the file of the store.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::store::LoadError;

/// How long a connection waits for another process that holds the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// SQLite 3.7.0 to 3.51.2 can corrupt a file in WAL mode that two connections checkpoint. `version` is SQLite's own number, such as 3051003.
pub(super) fn refuse_unsafe_library(version: i32) -> Result<(), LoadError> {
    if version >= 3_051_003 {
        return Ok(());
    }
    let text = format!("{}.{}.{}", version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
    Err(LoadError::Unusable(format!(
        "this build has SQLite {text}, which can corrupt a store; 3.51.3 or newer is needed"
    )))
}

pub(super) fn set_up_writer(connection: &Connection) -> rusqlite::Result<()> {
    // Before anything else: another process may hold the file for a moment (a backup, a person with a shell).
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // In KiB: enough for the upper pages of every index and the pages of `jobs` that are written again and again. Not more: a commit after a
    // page was split goes through all of the cache (SQLite gives the page a number beyond the last one meanwhile), and the system has the file
    // in memory too.
    connection.pragma_update(None, "cache_size", -16_384)?;
    // Checkpoints are ours (see `wal` and `checkpointer`). In bytes: the WAL shrinks to this after a long backup.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update_and_check(None, "journal_size_limit", 256 << 20, |_| Ok(()))?;
    keep_plans(connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Plans a statement once, whatever values it gets. SQLite would plan most of the cached statements anew at each use: a plan may depend on the
/// values, and a statement that goes back to the cache loses them.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// A connection that may write, for the checkpointer, which copies the WAL into the database.
pub(super) fn open_writing(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // In KiB; each reader has its own.
    connection.pragma_update(None, "cache_size", -8_192)?;
    keep_plans(&connection)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Makes the file if it is missing, before SQLite would make it for everybody to read. SQLite gives the `-wal` and `-shm` files its mode. If
/// that fails, SQLite says why.
pub(super) fn make_private(file: &Path) {
    let _ = File::options().write(true).create_new(true).mode(0o600).open(file);
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_cached_statement_is_planned_once() {
        let connection = Connection::open_in_memory().unwrap();
        set_up_writer(&connection).unwrap();
        connection.execute_batch("CREATE TABLE t (a, b); CREATE INDEX t_by_a ON t (a)").unwrap();
        for value in 0..5 {
            let mut statement = connection.prepare_cached("SELECT b FROM t WHERE a = ?1").unwrap();
            assert!(!statement.exists([value]).unwrap());
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "with the value {value}");
        }
    }

    #[test]
    fn a_library_that_corrupts_stores_is_refused_by_the_version_that_people_know() {
        assert!(refuse_unsafe_library(3_051_003).is_ok());
        let refused = refuse_unsafe_library(3_051_002).expect_err("refused").to_string();
        assert!(refused.contains("SQLite 3.51.2, which"), "{refused}");
    }
}
