//! `/changes`: the loads that have changed definitions.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::list_address::ListAddress;
use super::page::{Frame, render};
use crate::http::api::definition_changes;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::DefinitionChange;
use crate::http::state::AppState;

/// A load as a row.
struct Row {
    change: DefinitionChange,
    at: Moment,
    /// The names with their number beyond those that are kept, each list with its verb.
    lists: Vec<(&'static str, Vec<String>, u64)>,
}

impl Row {
    fn of(mut change: DefinitionChange) -> Self {
        let lists = [
            ("added", std::mem::take(&mut change.added), change.added_more),
            ("changed", std::mem::take(&mut change.changed), change.changed_more),
            ("removed", std::mem::take(&mut change.removed), change.removed_more),
        ];
        let lists = lists.into_iter().filter(|(_, names, more)| !names.is_empty() || *more > 0);
        Self { at: format::moment(change.at), lists: lists.collect(), change }
    }
}

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangesPage {
    frame: Frame,
    name: String,
    by: String,
    rows: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
}

/// `GET /changes`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let page = definition_changes::page(&state, address.query()).await?;
    render(&ChangesPage {
        frame: Frame::new(&state, "definitions", "Changes of definitions"),
        name: address.value("name"),
        by: address.value("by"),
        rows: page.entries.into_iter().map(Row::of).collect(),
        older: address.next_page(page.next.as_deref()),
    })
}
