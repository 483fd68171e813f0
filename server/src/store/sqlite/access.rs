//! Tokens and the audit log.

use std::sync::Arc;

use protocol::{Timestamp, WorkerId};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::archive::SqliteArchive;
use super::{json_column, rows};
use crate::auth::actor::Scope;
use crate::auth::role::Role;
use crate::store::{
    AccessArchive, AccessChange, AuditFilter, AuditLimits, AuditRow, ReadError, TokenId, TokenRow,
};

/// Applies a change within a transaction.
pub(super) fn write(connection: &Connection, change: &AccessChange) -> rusqlite::Result<()> {
    match change {
        AccessChange::AddToken(row) => add_token(connection, row),
        AccessChange::RevokeToken(id, at) => connection
            .prepare_cached("UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1")?
            .execute((id.0.cast_signed(), at.0))
            .map(drop),
        AccessChange::UseTokens(uses) => uses.iter().try_for_each(|(id, at)| {
            connection
                .prepare_cached(
                    "UPDATE tokens SET last_used_at = max(coalesce(last_used_at, ?2), ?2) WHERE id = ?1",
                )?
                .execute((id.0.cast_signed(), at.0))
                .map(drop)
        }),
        AccessChange::Audit(rows, limits) => {
            rows.iter().try_for_each(|row| add_audit(connection, row))?;
            prune_audit(connection, *limits, rows.len())
        }
        // The newest one stays, and those by which workers have joined: their numbers must not be given to others.
        AccessChange::ForgetTokens(before) => connection
            .prepare_cached(
                "DELETE FROM tokens WHERE revoked_at < ?1 AND id < (SELECT max(id) FROM tokens)
                     AND id NOT IN (SELECT join_token FROM workers WHERE join_token IS NOT NULL)",
            )?
            .execute([before.0])
            .map(drop),
    }
}

/// Deletes rows of the audit log from its beginning. Twice as many as were added, so that a log that is too long becomes shorter; no
/// more, so that a commit does not wait for long.
fn prune_audit(connection: &Connection, limits: AuditLimits, added: usize) -> rusqlite::Result<()> {
    let deleted_max = i64::try_from(added.saturating_mul(2)).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit ORDER BY id LIMIT ?3)
                 AND (until < ?1 OR id <= (SELECT max(id) FROM audit) - ?2)",
        )?
        .execute((limits.since.0, limits.rows_max.cast_signed(), deleted_max))
        .map(drop)
}

fn add_token(connection: &Connection, row: &TokenRow) -> rusqlite::Result<()> {
    let scope = serde_json::Value::from(row.scope.patterns()).to_string();
    connection
        .prepare_cached(
            "INSERT INTO tokens (id, name, hash, role, scope, created_at, created_by, expires_at, uses, labels)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            row.id.0.cast_signed(),
            &*row.name,
            row.hash,
            row.role.name(),
            scope,
            row.created_at.0,
            row.created_by,
            row.expires_at.map(|at| at.0),
            row.uses,
            json_column::code(&row.labels),
        ])
        .map(drop)
}

fn add_audit(connection: &Connection, row: &AuditRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO audit (since, until, count, token, role, address, method, target, status, problem, request_id,
                 object, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            row.from.0,
            row.to.0,
            row.count.cast_signed(),
            row.token.as_deref(),
            row.role.map(Role::name),
            row.address.map(|address| address.to_string()),
            row.method,
            row.target,
            row.status,
            row.problem,
            row.request_id,
            row.object,
            row.detail,
        ])
        .map(drop)
}

impl AccessArchive for SqliteArchive {
    fn lost_workers(&self) -> Result<Vec<(WorkerId, Timestamp)>, ReadError> {
        self.read(rows::lost_workers)
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, ReadError> {
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, name, hash, role, scope, created_at, created_by, expires_at, last_used_at, revoked_at, uses, labels,
                         joined
                     FROM tokens ORDER BY id",
                )?
                .query_map([], token)?
                .collect()
        })
    }

    fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, ReadError> {
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let before = filter.before.map_or(i64::MAX, u64::cast_signed);
        self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, since, until, count, token, role, address, method, target, status, problem, request_id, object,
                         detail
                     FROM audit WHERE id < ?1 AND (?2 IS NULL OR token = ?2) AND (?3 IS NULL OR instr(target, ?3) > 0)
                         AND (?4 IS NULL OR until >= ?4) AND (NOT ?5 OR status >= 400)
                         AND (?7 IS NULL OR instr(object, ?7) > 0 OR instr(detail, ?7) > 0)
                     ORDER BY id DESC LIMIT ?6",
                )?
                .query_map(
                    params![
                        before,
                        filter.token,
                        filter.target,
                        filter.since.map(|at| at.0),
                        filter.refused,
                        limit,
                        filter.about
                    ],
                    audit,
                )?
                .collect()
        })
    }
}

fn token(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let scope: String = row.get(4)?;
    let patterns = serde_json::from_str(&scope)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, Box::new(error)))?;
    let time = |index| row.get::<_, Option<i64>>(index).map(|at| at.map(Timestamp));
    Ok(TokenRow {
        id: TokenId(row.get::<_, i64>(0)?.cast_unsigned()),
        name: row.get::<_, Arc<str>>(1)?,
        hash: row.get(2)?,
        role: role(row, 3)?.ok_or_else(|| unknown(3))?,
        scope: Scope::new(patterns),
        created_at: Timestamp(row.get(5)?),
        created_by: row.get(6)?,
        expires_at: time(7)?,
        last_used_at: time(8)?,
        revoked_at: time(9)?,
        uses: row.get(10)?,
        labels: json_column::read(row, 11)?.unwrap_or_default(),
        joined: row.get(12)?,
    })
}

fn audit(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        from: Timestamp(row.get(1)?),
        to: Timestamp(row.get(2)?),
        count: row.get::<_, i64>(3)?.cast_unsigned(),
        token: row.get::<_, Option<Arc<str>>>(4)?,
        role: role(row, 5)?,
        address: row.get::<_, Option<String>>(6)?.and_then(|address| address.parse().ok()),
        method: row.get(7)?,
        target: row.get(8)?,
        status: row.get(9)?,
        problem: row.get(10)?,
        request_id: row.get(11)?,
        object: row.get(12)?,
        detail: row.get(13)?,
    })
}

fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Role>> {
    let Some(name) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    Role::find(&name).map(Some).ok_or_else(|| unknown(column))
}

fn unknown(column: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(column, "role".to_owned(), Type::Text)
}
