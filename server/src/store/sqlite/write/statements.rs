//! The statements of the busy path: prepared once per connection, picked up once per group.

use rusqlite::{CachedStatement, Connection};

/// The statements of the busy path, picked up at their first use in a group.
pub(super) struct Statements<'c> {
    pub(super) insert_waiting: Lazily<'c>,
    pub(super) insert_assigned: Lazily<'c>,
    pub(super) due: Lazily<'c>,
    pub(super) assign: Lazily<'c>,
    pub(super) advance: Lazily<'c>,
    pub(super) wait: Lazily<'c>,
    pub(super) end_held: Lazily<'c>,
    pub(super) end_idle: Lazily<'c>,
    pub(super) remove: Lazily<'c>,
}

impl Default for Statements<'_> {
    fn default() -> Self {
        Self {
            insert_waiting: Lazily::new(include_str!("../queries/insert_waiting.sql")),
            insert_assigned: Lazily::new(include_str!("../queries/insert_assigned.sql")),
            due: Lazily::new("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1"),
            assign: Lazily::new(include_str!("../queries/assign.sql")),
            advance: Lazily::new(include_str!("../queries/advance.sql")),
            wait: Lazily::new(include_str!("../queries/wait.sql")),
            end_held: Lazily::new(include_str!("../queries/end_held.sql")),
            end_idle: Lazily::new(include_str!("../queries/end_idle.sql")),
            remove: Lazily::new("DELETE FROM jobs WHERE id = ?1"),
        }
    }
}

pub(super) struct Lazily<'c> {
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> Lazily<'c> {
    const fn new(sql: &'static str) -> Self {
        Self { sql, statement: None }
    }

    pub(super) fn on(&mut self, connection: &'c Connection) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let statement = match self.statement.take() {
            Some(statement) => statement,
            None => connection.prepare_cached(self.sql)?,
        };
        Ok(self.statement.insert(statement))
    }
}
