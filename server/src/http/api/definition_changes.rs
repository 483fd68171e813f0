//! `GET /api/definitions/changes`: the loads that have changed definitions.
//!
//! A token with `--definitions` sees the names that it is for, and only loads with such a name, with a change of the policy, or with more
//! names than a row keeps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use crate::auth::actor::{Actor, Scope};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::cursor;
use crate::http::request::paging::{Page, limit};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{ChangedNames, DefinitionChangeRow};

/// `GET /api/definitions/changes`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    Ok(page(&state, Query::of(&uri)?).await?.into_answer(&state, "definitions/changes", &uri))
}

/// Reads the page that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_cursor`, `invalid_limit`, and those of a read.
pub(crate) async fn page(
    state: &AppState,
    mut query: Query,
) -> Result<Page<shapes::DefinitionChange>, Problem> {
    let before = query.text("cursor")?.as_deref().map(read_cursor).transpose()?.unwrap_or(u64::MAX);
    let limit = query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?;
    let (names, by, since) = (query.text("name")?, query.text("by")?, query.since("since")?);
    query.finish()?;
    let names = names.map(|names| Scope::new(names.split(',').map(|name| name.trim().to_owned()).collect()));
    let scope = Actor::current().scope.clone();
    let fits = move |row: &DefinitionChangeRow| {
        // One name has to fit both, so that nobody learns of a name that the token is not for.
        let is_asked_for =
            |name: &str| scope.includes(name) && names.as_ref().is_none_or(|names| names.includes(name));
        by.as_ref().is_none_or(|by| row.by.as_ref() == Some(by))
            && since.is_none_or(|since| row.at >= since)
            && concerns(row, is_asked_for)
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

/// True if a list of the row has a name that is asked for, or more names than it keeps, or if the policy has changed, which concerns all definitions.
fn concerns(row: &DefinitionChangeRow, is_asked_for: impl Fn(&str) -> bool) -> bool {
    let lists = [&row.added, &row.changed, &row.removed];
    row.policy_changed
        || lists.iter().any(|list| list.more > 0 || list.names.iter().any(|name| is_asked_for(name)))
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
