//! Direct access to the SQLite file of a server that has ended, to check what it stored.

use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

/// A server's database, opened for reading only.
#[derive(Debug)]
pub struct Database(Connection);

impl Database {
    /// Opens the database in a data directory.
    #[must_use]
    pub fn open(data: &Path) -> Self {
        Self(Connection::open_with_flags(file_in(data), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap())
    }

    /// Executes SQL statements on the database in a data directory, such as to plant a fault. Its server must have ended.
    pub fn execute(data: &Path, statement: &str) {
        let connection = Connection::open(file_in(data)).unwrap();
        connection.execute_batch(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Returns the single value of a query.
    pub fn query_one<T: FromSql>(&self, query: &str) -> T {
        self.0.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Returns all rows of a query, each converted by `read`.
    pub fn query_rows<T>(
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
