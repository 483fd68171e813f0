//! The history of the definitions.

use protocol::{Revision, Timestamp};
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, Row, params};
use serde::Serialize;

use super::archive::SqliteArchive;
use super::json_column;
use crate::store::{
    DefinitionArchive, DefinitionChange, DefinitionChangeRow, LastLoad, LoadCause, ReadError,
};

/// Applies a change within a transaction.
pub(super) fn write(connection: &Connection, change: &DefinitionChange) -> rusqlite::Result<()> {
    match change {
        DefinitionChange::Deploying(intent) => connection
            .prepare_cached("UPDATE definition_load SET deploying = ?1")?
            .execute([json(intent)?])
            .map(drop),
        DefinitionChange::NotDeployed => {
            connection.prepare_cached("UPDATE definition_load SET deploying = NULL")?.execute([]).map(drop)
        }
        DefinitionChange::Loaded { row, loaded, rows_max } => {
            if let Some(row) = row {
                add(connection, row)?;
                prune(connection, *rows_max)?;
            }
            connection
                .prepare_cached("UPDATE definition_load SET loaded = ?1, deploying = NULL")?
                .execute([json(loaded)?])
                .map(drop)
        }
    }
}

fn add(connection: &Connection, row: &DefinitionChangeRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO definition_changes (at, cause, made_by, reason, before, after, added, changed, removed, policy_changed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            row.at.0,
            row.cause.name(),
            row.by,
            row.reason,
            row.before.map(|revision| revision.to_string()),
            row.after.to_string(),
            json(&row.added)?,
            json(&row.changed)?,
            json(&row.removed)?,
            row.policy_changed,
        ])
        .map(drop)
}

/// Deletes the oldest rows. The newest one stays, so a number is never given twice.
fn prune(connection: &Connection, rows_max: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM definition_changes WHERE id <= (SELECT max(id) FROM definition_changes) - ?1",
        )?
        .execute([rows_max.max(1).cast_signed()])
        .map(drop)
}

fn json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

impl DefinitionArchive for SqliteArchive {
    fn definition_changes(&self, before: u64, limit: usize) -> Result<Vec<DefinitionChangeRow>, ReadError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, at, cause, made_by, reason, before, after, added, changed, removed, policy_changed
                     FROM definition_changes WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
                )?
                .query_map([before, limit], change)?
                .collect()
        })
    }

    fn last_load(&self) -> Result<LastLoad, ReadError> {
        self.read(|connection| {
            connection.prepare_cached("SELECT loaded, deploying FROM definition_load")?.query_row([], |row| {
                Ok(LastLoad { loaded: json_column::read(row, 0)?, deploying: json_column::read(row, 1)? })
            })
        })
    }
}

fn change(row: &Row<'_>) -> rusqlite::Result<DefinitionChangeRow> {
    Ok(DefinitionChangeRow {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        at: Timestamp(row.get(1)?),
        cause: LoadCause::find(&row.get::<_, String>(2)?).ok_or(FromSqlError::InvalidType)?,
        by: row.get(3)?,
        reason: row.get(4)?,
        before: row.get::<_, Option<String>>(5)?.as_deref().map(revision).transpose()?,
        after: revision(&row.get::<_, String>(6)?)?,
        added: json_column::read(row, 7)?.unwrap_or_default(),
        changed: json_column::read(row, 8)?.unwrap_or_default(),
        removed: json_column::read(row, 9)?.unwrap_or_default(),
        policy_changed: row.get(10)?,
    })
}

fn revision(text: &str) -> rusqlite::Result<Revision> {
    u128::from_str_radix(text, 16).map(Revision).map_err(|_| FromSqlError::InvalidType.into())
}
