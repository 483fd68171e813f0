//! Reading jobs.yaml again, as a whole or not at all.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};

use super::body;
use super::code::Code;
use super::definitions;
use super::desk::Desk;
use super::path::Name;
use super::problem::Problem;
use super::view;
use crate::catalogue::Definitions;
use crate::config::jobs_file::{self, Environment, Fault, Faults, LoadedFile, Place};

/// `POST /api/definitions/reload`
pub(super) async fn reload(
    State(desk): State<Arc<Desk>>,
    request: Request,
) -> Result<Json<view::Reloaded>, Problem> {
    desk.must_stay()?;
    body::read(request.into_body(), 0, body::PATIENCE).await?;
    let _turn = desk.reloading.lock().await;
    let (file, intervals) = (desk.app.jobs_file.clone(), desk.app.intervals);
    let loaded = desk
        .block(move || {
            let environment = Environment::of_process().with_intervals(intervals);
            let loaded = jobs_file::load(&file, &environment);
            loaded.and_then(LoadedFile::require_jobs).map_err(refused)
        })
        .await?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let warnings =
        loaded.warnings.iter().map(|warning| format!("{}: {}", place(warning), warning.text)).collect();
    let definitions = Definitions::new(loaded.definitions);
    let reloaded = view::Reloaded { warnings, ..difference(&desk.app.catalogue.current(), &definitions) };
    // The engine first: whoever reads the new catalogue may ask it for what is new there.
    desk.app.engine.define(Arc::new(definitions.clone()))?;
    desk.app.catalogue.replace(definitions);
    tracing::info!(
        definitions = reloaded.definitions,
        added = ?reloaded.added,
        changed = ?reloaded.changed,
        removed = ?reloaded.removed,
        "jobs.yaml was read again"
    );
    Ok(Json(reloaded))
}

/// `GET /api/definitions/reload`: a definition may have this name.
pub(super) async fn one_of_that_name(desk: State<Arc<Desk>>) -> Result<Json<view::Definition>, Problem> {
    definitions::one(desk, Name("reload".to_owned())).await
}

fn refused(faults: Faults) -> Problem {
    let fault = |fault: &Fault| view::Fault {
        code: fault.code.name().into(),
        field: place(fault),
        detail: fault.text.clone(),
        hint: None,
    };
    let count = faults.list.len() + faults.more;
    let first = faults.list.first().map(|fault| format!("{}: {}", place(fault), fault.text));
    tracing::warn!(
        faults = count,
        first = first.unwrap_or_default(),
        "jobs.yaml was read again and is refused: the definitions stay as they were"
    );
    let detail = match count {
        1 => "the file has a fault; the definitions stay as they were".to_owned(),
        count => format!("the file has {count} faults; the definitions stay as they were"),
    };
    Problem::new(Code::InvalidJobsFile, detail)
        .errors(faults.list.iter().map(fault).collect())
        .hint("repair the file, and ask again")
}

/// `jobs.yaml:4:5`, without the directories: they are nobody's business over HTTP.
fn place(fault: &Fault) -> String {
    let name = fault.file.rsplit('/').next().unwrap_or_default();
    match fault.at {
        Place::FILE => name.to_owned(),
        at => format!("{name}:{}:{}", at.line, at.column),
    }
}

fn difference(before: &Definitions, after: &Definitions) -> view::Reloaded {
    let name = |entry: &Arc<crate::catalogue::Entry>| entry.definition.name.clone();
    let is_in = |definitions: &Definitions, name: &str| definitions.find(name).is_some();
    view::Reloaded {
        definitions: after.iter().count(),
        added: after.iter().map(name).filter(|name| !is_in(before, name)).collect(),
        changed: after
            .iter()
            .filter(|entry| {
                let old = before.find(&entry.definition.name);
                old.is_some_and(|old| old.definition != entry.definition)
            })
            .map(name)
            .collect(),
        removed: before.iter().map(name).filter(|name| !is_in(after, name)).collect(),
        warnings: Vec::new(),
    }
}
