//! `/audit`: the requests that were to change something.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::page::{Frame, render};
use crate::http::api::audit;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::AuditEntry;
use crate::http::request::query::{Query, encode};
use crate::http::state::AppState;

/// A row of the audit log.
struct Row {
    entry: AuditEntry,
    at: Moment,
    tone: &'static str,
}

impl Row {
    fn of(entry: AuditEntry) -> Self {
        let tone = if entry.status < 400 { "good" } else { "bad" };
        Self { at: format::moment(entry.to), tone, entry }
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    by: String,
    path: String,
    refused: bool,
    rows: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
}

/// `GET /audit`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    // Browsers send each field of a form, empty or not.
    let pairs = Query::pairs(&uri)?;
    let filled: Vec<(String, String)> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let page = audit::page(&state, Query::new(filled.clone())).await?;
    let value = |name: &str| {
        let found = filled.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let pairs = filled.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let next = page.next.as_deref().map(|cursor| ("cursor", cursor));
    let older = next.map(|next| encode(pairs.filter(|(name, _)| *name != "cursor").chain([next])));
    render(&AuditPage {
        frame: Frame::new(&state, "audit", "Audit log"),
        by: value("by"),
        path: value("path"),
        refused: !value("refused").is_empty(),
        rows: page.entries.into_iter().map(Row::of).collect(),
        older,
    })
}
