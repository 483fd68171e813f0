//! The database of a server that has left: the last word on what it has promised.

use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

/// A database, opened for reading only.
#[derive(Debug)]
pub struct Ledger(Connection);

impl Ledger {
    /// Finds the database in a data directory.
    #[must_use]
    pub fn open(data: &Path) -> Self {
        Self(Connection::open_with_flags(file_in(data), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap())
    }

    /// Changes the database in a data directory behind the back of its server, which must have ended.
    pub fn plant(data: &Path, statement: &str) {
        let connection = Connection::open(file_in(data)).unwrap();
        connection.execute_batch(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// The one value that a query has for an answer.
    pub fn one<T: FromSql>(&self, query: &str) -> T {
        self.0.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Every row that a query has for an answer, read by `read`.
    pub fn rows<T>(
        &self,
        query: &str,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Vec<T> {
        let mut statement = self.0.prepare(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let rows = statement.query_map([], read).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

fn file_in(data: &Path) -> PathBuf {
    let entries = std::fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
    let is_database =
        |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"));
    entries.filter(|path| path.is_file()).find(is_database).unwrap()
}
