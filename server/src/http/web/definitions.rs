//! `/definitions` and `/definitions/{name}`: the runs of a definition, how it is defined, and the form that runs it.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use scheduler::pauses::PauseTarget;

use super::chart::{self, Bar, Summary};
use super::format;
use super::jobs::Row;
use super::page::{Frame, render};
use super::schedules::ScheduleRow;
use crate::http::api::{definitions, jobs};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Definition, Job, Pause};
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;

/// Runs that a chart shows.
const RUNS: &str = "50";

/// Definitions of a page: each costs a read of its last runs.
const PAGE: usize = 50;

/// Runs of each definition in the list.
const RUNS_IN_LIST: &str = "20";

/// A definition as a row of the list.
struct DefinitionRow {
    definition: Definition,
    waiting: u64,
    bars: Vec<Bar>,
    last: Option<Row>,
    summary: Option<Summary>,
}

#[derive(Template)]
#[template(path = "definitions.html")]
struct DefinitionsPage {
    frame: Frame,
    rows: Vec<DefinitionRow>,
    query: String,
    count: usize,
    server_paused: bool,
    /// Groups that are paused.
    groups_paused: Vec<String>,
    /// The page before and the page behind, from 1.
    newer: Option<usize>,
    older: Option<usize>,
}

/// `GET /definitions?q=&page=`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let wanted = query.text("q")?.unwrap_or_default();
    let page = usize::try_from(query.number("page")?.unwrap_or(1)).unwrap_or(1).max(1);
    query.finish()?;
    let all = definitions::list(State(Arc::clone(&state)), Uri::from_static("/")).await?.1.0;
    let fits = |definition: &Definition| {
        wanted.is_empty()
            || definition.name.contains(&wanted)
            || definition.tags.contains(&wanted)
            || definition.owner.as_deref() == Some(wanted.as_str())
    };
    let fitting: Vec<Definition> = all.into_iter().filter(fits).collect();
    let count = fitting.len();
    let mut rows = Vec::new();
    for definition in fitting.into_iter().skip((page - 1) * PAGE).take(PAGE) {
        let runs = last_runs(&state, &definition.name, RUNS_IN_LIST).await?;
        rows.push(DefinitionRow {
            waiting: definition.waiting.iter().map(|waiting| waiting.count).sum(),
            bars: chart::runs(&runs),
            summary: chart::summary(&runs),
            last: runs.into_iter().next().map(Row::of),
            definition,
        });
    }
    let pauses = state.services.engine.snapshot().pauses.clone();
    render(&DefinitionsPage {
        frame: Frame::new(&state, "definitions", "Definitions"),
        rows,
        query: wanted,
        count,
        server_paused: pauses.contains(&PauseTarget::Server),
        groups_paused: pauses.iter().filter_map(|(target, _)| group(target)).collect(),
        newer: (page > 1).then(|| page - 1),
        older: (page * PAGE < count).then_some(page + 1),
    })
}

fn group(target: &PauseTarget) -> Option<String> {
    match target {
        PauseTarget::Group(name) => Some(name.to_string()),
        _ => None,
    }
}

/// The newest jobs of a definition; none if no job of it was ever made.
async fn last_runs(state: &AppState, name: &str, limit: &str) -> Result<Vec<Job>, Problem> {
    let pairs = [("name", name), ("limit", limit)];
    let query = Query::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    Ok(jobs::page(state, query).await?.jobs)
}

#[derive(Template)]
#[template(path = "definition.html")]
struct DefinitionPage {
    frame: Frame,
    definition: Definition,
    waiting: u64,
    bars: Vec<Bar>,
    summary: Option<Summary>,
    runs: Vec<Row>,
    schedules: Vec<ScheduleRow>,
    /// The definition's facts, each with its name.
    facts: Vec<(&'static str, String)>,
    /// It is paused itself.
    is_paused: bool,
    /// All that holds its jobs back.
    paused_by: Vec<String>,
}

/// `GET /definitions/{name}`
pub(crate) async fn one(State(state): State<Arc<AppState>>, Name(name): Name) -> Result<Response, Problem> {
    let definition = definitions::one(State(Arc::clone(&state)), Name(name.clone())).await?.0;
    let runs = last_runs(&state, &name, RUNS).await?;
    render(&DefinitionPage {
        frame: Frame::new(&state, "definitions", &name),
        waiting: definition.waiting.iter().map(|waiting| waiting.count).sum(),
        bars: chart::runs(&runs),
        summary: chart::summary(&runs),
        runs: runs.into_iter().take(10).map(Row::of).collect(),
        is_paused: definition.pauses.iter().any(|pause| pause.of == "definition"),
        paused_by: definition.pauses.iter().map(Pause::words).collect(),
        schedules: definition.schedules.iter().cloned().map(ScheduleRow::of).collect(),
        facts: facts(&definition),
        definition,
    })
}

/// The facts that a reader asks for first; the API has the rest.
fn facts(definition: &Definition) -> Vec<(&'static str, String)> {
    let joined = |words: &[String]| words.join(" ");
    let optional = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), format::span_ms);
    let mut facts = vec![
        ("runtime", definition.runtime.to_string()),
        ("image", definition.image.clone()),
        ("command", joined(&definition.command)),
        ("variables", definition.environment.join(", ")),
        ("volumes", joined(&definition.volumes)),
        ("priority", definition.priority.to_string()),
        ("timeout", optional(definition.timeout_ms)),
        ("retries", format!("{} ({})", definition.retry.max, definition.retry.when.join(", "))),
        ("overlap", definition.overlap.to_string()),
        ("on lost", format!("{} after {}", definition.on_lost, format::span_ms(definition.lost_after_ms))),
        ("memory", definition.memory_bytes.map(format::bytes).unwrap_or_default()),
        ("owner", definition.owner.clone().unwrap_or_default()),
        ("tags", definition.tags.join(", ")),
        ("revision", definition.revision.clone()),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}
