//! `GET /api/audit`: the requests that were to change something.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;

use crate::auth::role::Role;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::cursor;
use crate::http::request::paging::{Page, limit};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{AuditFilter, AuditRow};

pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    Ok(page(&state, Query::of(&uri)?).await?.into_answer(&state, "audit", &uri))
}

/// Reads the page that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_cursor`, `invalid_limit`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page<shapes::AuditEntry>, Problem> {
    let before = query.text("cursor")?.as_deref().map(cursor::read).transpose()?;
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    let filter = AuditFilter {
        token: query.text("by")?,
        target: query.text("path")?,
        about: query.text("about")?,
        since: query.since("since")?,
        refused: query.switch("refused")?,
        before: before.map(|JobId(id)| id),
        // One extra row shows whether there is a next page.
        limit: limit + 1,
    };
    query.finish()?;
    let archive = Arc::clone(&state.services.records.archive);
    let mut rows = state.block(move || Ok(archive.audit(&filter)?)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor::write(JobId(row.id)));
    Ok(Page { entries: rows.into_iter().map(entry).collect(), next })
}

fn entry(row: AuditRow) -> shapes::AuditEntry {
    shapes::AuditEntry {
        id: row.id,
        from: Time(row.from),
        to: Time(row.to),
        count: row.count,
        token: row.token.map(|name| name.to_string()),
        role: row.role.map(|role| Role::name(role).into()),
        address: row.address.map(|address| address.to_string()),
        method: row.method,
        target: row.target,
        object: row.object,
        detail: row.detail,
        status: row.status,
        problem: row.problem,
        request_id: row.request_id,
    }
}

/// Default page size.
const LIMIT: usize = 100;
