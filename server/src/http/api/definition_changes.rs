//! `GET /api/definitions/changes`: the loads that have changed definitions.
//!
//! A token with `--definitions` sees the names that it is for, and only loads with such a name, with a change of the policy, or with more
//! names than a row keeps.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::auth::actor::{Actor, Scope};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::cursor;
use crate::http::request::paging::{limit, next_page};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{ChangedNames, DefinitionChangeRow};

/// `GET /api/definitions/changes`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let Page { entries, next } = page(&state, Query::of(&uri)?).await?;
    let link = next.map(|cursor| next_page(&state, "definitions/changes", &uri, &cursor));
    let mut response = Json(entries).into_response();
    if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// A page of the history, newest first.
pub(crate) struct Page {
    pub(crate) entries: Vec<shapes::DefinitionChange>,
    /// The `cursor` of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// Reads the page that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_cursor`, `invalid_limit`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page, Problem> {
    let before = query.text("cursor")?.as_deref().map(read_cursor).transpose()?.unwrap_or(u64::MAX);
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    let (names, by, since) = (query.text("name")?, query.text("by")?, query.since("since")?);
    query.finish()?;
    let names = names.map(|names| Scope::new(names.split(',').map(|name| name.trim().to_owned()).collect()));
    let scope = Actor::current().scope.clone();
    let fits = move |row: &DefinitionChangeRow| {
        names.as_ref().is_none_or(|names| concerns(row, names))
            && by.as_ref().is_none_or(|by| row.by.as_ref() == Some(by))
            && since.is_none_or(|since| row.at >= since)
            && concerns(row, &scope)
    };
    let Some(history) = state.services.reloader.history().cloned() else {
        return Ok(Page { entries: Vec::new(), next: None });
    };
    // One extra row shows whether there is a next page.
    let mut rows = state.block(move || Ok(history.read(before, limit + 1, fits)?)).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| cursor::encode(CURSOR, row.id.to_be_bytes()));
    let scope = &Actor::current().scope;
    Ok(Page { entries: rows.into_iter().map(|row| entry(row, scope)).collect(), next })
}

/// True if a list of the row has such a name, or more names than it keeps, or if the policy has changed, which concerns all definitions.
fn concerns(row: &DefinitionChangeRow, names: &Scope) -> bool {
    let lists = [&row.added, &row.changed, &row.removed];
    row.policy_changed
        || lists.iter().any(|list| list.more > 0 || list.names.iter().any(|name| names.includes(name)))
}

fn entry(row: DefinitionChangeRow, scope: &Scope) -> shapes::DefinitionChange {
    let names = |list: ChangedNames| {
        let shown = list.names.into_iter().filter(|name| scope.includes(name));
        (shown.collect::<Vec<_>>(), list.more)
    };
    let [(added, added_more), (changed, changed_more), (removed, removed_more)] =
        [row.added, row.changed, row.removed].map(names);
    shapes::DefinitionChange {
        id: row.id,
        at: Time(row.at),
        cause: row.cause.name().into(),
        by: row.by,
        reason: row.reason,
        before: row.before.map(|revision| revision.to_string()),
        after: row.after.to_string(),
        added,
        added_more,
        changed,
        changed_more,
        removed,
        removed_more,
        policy_changed: row.policy_changed,
    }
}

fn read_cursor(text: &str) -> Result<u64, Problem> {
    cursor::decode(CURSOR, text).map(u64::from_be_bytes)
}

const CURSOR: &[u8] = b"longshore definition changes cursor 1";
/// Default page size.
const LIMIT: usize = 100;
