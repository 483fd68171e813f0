//! The row of the installation, as readers need it.

use rusqlite::Connection;
use scheduler::ids::GroupNo;

/// The last commit that this connection sees. Rows that are read after it are at least as new.
pub(super) fn last_commit(connection: &Connection) -> rusqlite::Result<GroupNo> {
    let committed: i64 =
        connection.prepare_cached("SELECT committed FROM installation")?.query_row([], |row| row.get(0))?;
    Ok(GroupNo(committed.cast_unsigned()))
}
