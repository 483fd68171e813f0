//! The database of a server that has left: the last word on what it has promised.

use std::path::Path;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

/// A database, opened for reading only.
#[derive(Debug)]
pub(crate) struct Ledger(Connection);

impl Ledger {
    pub(crate) fn open(data: &Path) -> Self {
        let entries = std::fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
        let is_database = |path: &std::path::PathBuf| {
            std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"))
        };
        let file = entries.filter(|path| path.is_file()).find(is_database).unwrap();
        Self(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap())
    }

    /// The one value that a query has for an answer.
    pub(crate) fn one<T: FromSql>(&self, query: &str) -> T {
        self.0.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// A column of numbers.
    pub(crate) fn numbers(&self, query: &str) -> Vec<i64> {
        let mut statement = self.0.prepare(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }
}
