//! `/audit`: the requests that were to change something.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::list_address::ListAddress;
use super::page::{Frame, render};
use crate::http::api::audit;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::AuditEntry;
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
    about: String,
    refused: bool,
    rows: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
}

/// `GET /audit`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let page = audit::page(&state, address.query()).await?;
    render(&AuditPage {
        frame: Frame::new(&state, "audit", "Audit log"),
        by: address.value("by"),
        path: address.value("path"),
        about: address.value("about"),
        refused: !address.value("refused").is_empty(),
        rows: page.entries.into_iter().map(Row::of).collect(),
        older: address.next_page(page.next.as_deref()),
    })
}
