//! `/definitions/{name}/revisions`: the revisions of a definition that the store has, and the difference between two of them.
//!
//! Keys and values are those of `POST /api/definitions/plan`, so values that may be secret are not shown. Keys that make no new revision,
//! such as `notify`, are not part of one.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::Revision;
use serde_json::Value;

use super::page::{Frame, render};
use crate::catalogue::Entry;
use crate::config::jobs_file;
use crate::http::api::plan;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::KeyChange;
use crate::http::request::definition::find;
use crate::http::request::job_filter;
use crate::http::request::path::Name;
use crate::http::request::query::{Query, encode};
use crate::http::state::AppState;
use crate::notifications::target::Targets;
use crate::retention_rule::RetentionRule;
use crate::store::StoredDefinition;

/// Revisions that the page lists. Older ones can be compared by their address.
const REVISIONS_SHOWN: usize = 50;

/// A revision as a row.
struct RevisionRow {
    revision: String,
    /// New jobs are made with it.
    is_current: bool,
    /// Query of the difference to the row below; empty for the last row.
    compare: String,
}

/// A key with its values in words.
struct ChangeRow {
    key: String,
    old: Option<String>,
    new: Option<String>,
    is_hidden: bool,
}

/// The difference between two revisions.
struct Difference {
    from: String,
    to: String,
    changes: Vec<ChangeRow>,
}

#[derive(Template)]
#[template(path = "revisions.html")]
struct RevisionsPage {
    frame: Frame,
    name: String,
    rows: Vec<RevisionRow>,
    /// The list is cut.
    has_more: bool,
    difference: Option<Difference>,
}

/// `GET /definitions/{name}/revisions?from=&to=`. If one of both is absent, it is the revision in force, or else the one on top.
pub(crate) async fn show(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let (from, to) = (query.text("from")?, query.text("to")?);
    query.finish()?;
    let definitions = state.services.catalogue.current();
    let current = definitions.find(&name).map(|entry| Arc::clone(&entry.stored));
    let wanted = name.clone();
    let mut stored = state.read(move |archive| archive.revisions(&wanted, REVISIONS_SHOWN + 1)).await?;
    if let Some(current) = &current
        && !stored.iter().any(|it| it.revision == current.revision)
    {
        stored.insert(0, StoredDefinition::clone(current));
    }
    if stored.is_empty() {
        // The problem names similar definitions.
        find(&definitions, &name)?;
    }
    let difference = match (from, to) {
        (None, None) => None,
        (from, to) => {
            let present = current.as_deref().or(stored.first());
            let present = || present.map(|it| it.revision.to_string()).unwrap_or_default();
            let from = job_filter::revision("from", &from.unwrap_or_else(present))?;
            let to = job_filter::revision("to", &to.unwrap_or_else(present))?;
            Some(difference(&state, &name, &stored, (from, to)).await?)
        }
    };
    let has_more = stored.len() > REVISIONS_SHOWN;
    let below = stored.iter().skip(1).map(Some).chain([None]);
    let rows = stored.iter().zip(below).take(REVISIONS_SHOWN).map(|(it, below)| RevisionRow {
        revision: it.revision.to_string(),
        is_current: current.as_ref().is_some_and(|current| current.revision == it.revision),
        compare: below.map(|below| compare(below.revision, it.revision)).unwrap_or_default(),
    });
    render(&RevisionsPage {
        frame: Frame::new(&state, "definitions", format!("Revisions of {name}")),
        rows: rows.collect(),
        has_more,
        difference,
        name,
    })
}

fn compare(from: Revision, to: Revision) -> String {
    let (from, to) = (from.to_string(), to.to_string());
    encode([("from", from.as_str()), ("to", to.as_str())])
}

async fn difference(
    state: &AppState,
    name: &str,
    listed: &[StoredDefinition],
    (from, to): (Revision, Revision),
) -> Result<Difference, Problem> {
    let (old, new) = (revision(state, name, listed, from).await?, revision(state, name, listed, to).await?);
    let changes = plan::differences(&old, &new).into_iter().map(change_row).collect();
    Ok(Difference { from: from.to_string(), to: to.to_string(), changes })
}

/// A stored revision as an entry, without the keys that make no new revision.
async fn revision(
    state: &AppState,
    name: &str,
    listed: &[StoredDefinition],
    revision: Revision,
) -> Result<Entry, Problem> {
    let stored = match listed.iter().find(|it| it.revision == revision) {
        Some(stored) => Some(stored.clone()),
        None => state.read(move |archive| archive.definition(revision)).await?,
    };
    let gone = || {
        let detail = format!("\"{name}\" as of the revision {revision} is gone");
        Problem::new(ProblemCode::RevisionGone, detail)
            .hint(format!("/definitions/{name}/revisions lists those that are kept"))
    };
    let stored = stored.filter(|stored| stored.name == name).ok_or_else(gone)?;
    let definition = jobs_file::parse_stored(&stored).map_err(|_| gone())?;
    Ok(Entry {
        definition: Arc::new(definition),
        stored: Arc::new(stored),
        file: None,
        params_in_order: Vec::new(),
        description: None,
        owner: None,
        tags: Vec::new(),
        notify: Targets::default(),
        retention: RetentionRule::default(),
    })
}

fn change_row(change: KeyChange) -> ChangeRow {
    let text = |value: Option<Value>| value.map(|value| KeyChange::value_in_words(&change.key, Some(&value)));
    let (old, new) = (text(change.old), text(change.new));
    ChangeRow { old, new, is_hidden: change.hidden, key: change.key }
}

/// The keys of a definition with their values, a line each, as plans and differences name them.
pub(super) fn keys(entry: &Entry) -> String {
    let line =
        |(key, value): (String, Value)| format!("{key}: {}\n", KeyChange::value_in_words(&key, Some(&value)));
    plan::shown(entry).into_iter().map(line).collect()
}
