//! The statements of the busy path: prepared once per connection, picked up once per group.

use rusqlite::{CachedStatement, Connection};

/// The statements of the busy path, picked up at their first use in a group.
pub(super) struct Statements<'c> {
    pub(super) insert_waiting: LazyStatement<'c>,
    pub(super) insert_assigned: LazyStatement<'c>,
    pub(super) due: LazyStatement<'c>,
    pub(super) assign: LazyStatement<'c>,
    pub(super) advance: LazyStatement<'c>,
    pub(super) wait: LazyStatement<'c>,
    pub(super) end_with_attempt: LazyStatement<'c>,
    pub(super) end_without_attempt: LazyStatement<'c>,
    pub(super) live_facts: LazyStatement<'c>,
    pub(super) remove: LazyStatement<'c>,
}

impl Default for Statements<'_> {
    fn default() -> Self {
        Self {
            insert_waiting: LazyStatement::new(include_str!("../queries/insert_waiting.sql")),
            insert_assigned: LazyStatement::new(include_str!("../queries/insert_assigned.sql")),
            due: LazyStatement::new("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1"),
            assign: LazyStatement::new(include_str!("../queries/assign.sql")),
            advance: LazyStatement::new(include_str!("../queries/advance.sql")),
            wait: LazyStatement::new(include_str!("../queries/wait.sql")),
            end_with_attempt: LazyStatement::new(include_str!("../queries/end_with_attempt.sql")),
            end_without_attempt: LazyStatement::new(include_str!("../queries/end_without_attempt.sql")),
            // Two statements: RETURNING keeps its rows in a temporary table, which costs more than the deletion itself.
            live_facts: LazyStatement::new("SELECT batch, state, definition FROM jobs WHERE id = ?1"),
            remove: LazyStatement::new("DELETE FROM jobs WHERE id = ?1"),
        }
    }
}

pub(super) struct LazyStatement<'c> {
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> LazyStatement<'c> {
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
