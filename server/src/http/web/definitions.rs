//! `/definitions` and `/definitions/{name}`: the runs of a definition, how it is defined, and the form that runs it.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use scheduler::origin::Intervention;
use scheduler::pauses::{PauseTarget, group_of};

use super::chart::{self, Bar, Summary};
use super::format::{self, Moment, ShownValue};
use super::jobs::Row;
use super::limits::{self, LimitRow};
use super::page::{Frame, render};
use super::page_links::PageLinks;
use super::revisions;
use super::run::{Control, RunForm};
use super::schedules::ScheduleRow;
use crate::http::api::definitions;
use crate::http::api::job_list::{self, ListForm};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Concurrency, Definition, Expectation, Job, Pause, RateLimit};
use crate::http::request::definition;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::JobFilter;

/// Runs that a chart shows, of one definition and of each in the list.
const RUNS: usize = 50;

/// Definitions of a page: each costs a read of its last runs.
const PAGE: usize = 50;

/// A definition as a row of the list.
struct DefinitionRow {
    definition: Definition,
    waiting: u64,
    bars: Vec<Bar>,
    last: Option<Row>,
    summary: Option<Summary>,
    /// `stale`, `slow` or both, if an expectation is missed.
    missed: Vec<&'static str>,
    /// Its own pause. The page shows those of its group and of the server once.
    pause: Option<PauseLine>,
}

/// The expectations of a definition that are missed.
fn missed(definition: &Definition) -> Vec<&'static str> {
    let Some(expect) = &definition.expect else { return Vec::new() };
    let all = [("stale", expect.stale_since.is_some()), ("slow", expect.slow_since.is_some())];
    all.into_iter().filter_map(|(condition, is_missed)| is_missed.then_some(condition)).collect()
}

#[derive(Template)]
#[template(path = "definitions.html")]
struct DefinitionsPage {
    frame: Frame,
    rows: Vec<DefinitionRow>,
    query: String,
    pages: PageLinks,
    server_pause: Option<PauseLine>,
    /// The groups that are paused, with their pauses.
    group_pauses: Vec<(String, PauseLine)>,
}

/// `GET /definitions?q=&page=`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let wanted = query.text("q")?.unwrap_or_default();
    let page = query.number("page")?;
    query.finish()?;
    let all = definitions::all(&state, state.services.catalogue.current().iter());
    let fits = |definition: &Definition| {
        wanted.is_empty()
            || definition.name.contains(&wanted)
            || definition.tags.contains(&wanted)
            || definition.owner.as_deref() == Some(wanted.as_str())
    };
    let mut fitting: Vec<Definition> = all.into_iter().filter(fits).collect();
    let pages = PageLinks::cut(&mut fitting, page, PAGE);
    let mut rows = Vec::new();
    for definition in fitting {
        let runs = last_runs(&state, &definition.name).await?;
        rows.push(DefinitionRow {
            waiting: definition.waiting.iter().map(|waiting| waiting.count).sum(),
            bars: chart::runs(&runs),
            summary: chart::summary(&runs),
            missed: missed(&definition),
            last: runs.into_iter().next().map(Row::of),
            pause: own_pause(&definition),
            definition,
        });
    }
    let snapshot = state.services.engine.snapshot();
    let line = |(target, pause): (&PauseTarget, &Intervention)| PauseLine::of(&Pause::of(target, pause));
    let server_pause = snapshot.pauses.iter().find(|(target, _)| **target == PauseTarget::Server);
    render(&DefinitionsPage {
        frame: Frame::new(&state, "definitions", "Definitions"),
        rows,
        query: wanted,
        pages,
        server_pause: server_pause.map(line),
        group_pauses: snapshot.pauses.iter().filter_map(|it| Some((group(it.0)?, line(it)))).collect(),
    })
}

fn group(target: &PauseTarget) -> Option<String> {
    match target {
        PauseTarget::Group(name) => Some(name.to_string()),
        _ => None,
    }
}

/// The newest jobs of a definition; none if no job of it was ever made. A job on several workers is one run, so its members are left out.
async fn last_runs(state: &AppState, name: &str) -> Result<Vec<Job>, Problem> {
    let filter = JobFilter { name: Some(name.to_owned()), without_members: true, ..JobFilter::default() };
    let runs = job_list::slice(state, filter, RUNS, ListForm::PLAIN).await?;
    Ok(runs.jobs.into_iter().map(|listed| listed.job).collect())
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
    facts: Vec<(&'static str, ShownValue)>,
    /// All its keys with their values.
    keys: String,
    /// Its own pause.
    pause: Option<PauseLine>,
    missed: Vec<&'static str>,
    stale_since: Option<Moment>,
    slow_since: Option<Moment>,
    slow_job: Option<u64>,
    /// Its expectations in words.
    expected: String,
    /// True if a parameter must be given, so that one button is not enough.
    needs_params: bool,
    form: RunForm,
    limits: Vec<LimitRow>,
    /// Some kind has as many keys as the answer takes, so there may be more.
    has_more_limits: bool,
    /// All that holds its jobs back.
    paused_by: Vec<String>,
    /// The ends and origins of these pauses that are known.
    origins: Vec<PauseLine>,
}

/// A pause as a line of a page.
pub(super) struct PauseLine {
    pub(super) what: String,
    pub(super) since: Option<Moment>,
    pub(super) until: Option<Moment>,
    /// ` by anna: disk swap`, or a part of it.
    pub(super) origin: String,
    /// The reason alone, for the form that changes the pause.
    pub(super) reason: String,
}

impl PauseLine {
    pub(super) fn of(pause: &Pause) -> Self {
        Self {
            what: pause.words(),
            since: pause.since.map(format::moment),
            until: pause.until.map(format::moment),
            origin: pause.origin(),
            reason: pause.reason.clone().unwrap_or_default(),
        }
    }
}

/// The pause of a definition itself.
fn own_pause(definition: &Definition) -> Option<PauseLine> {
    definition.pauses.iter().find(|pause| pause.of == "definition").map(PauseLine::of)
}

/// `GET /definitions/{name}`
pub(crate) async fn one(State(state): State<Arc<AppState>>, Name(name): Name) -> Result<Response, Problem> {
    let definition = definitions::one(State(Arc::clone(&state)), Name(name.clone())).await?.0;
    let runs = last_runs(&state, &name).await?;
    let expect = definition.expect.as_ref();
    let current = state.services.catalogue.current();
    let entry = definition::find(&current, &name)?;
    let waiting = definition.waiting.iter().map(|waiting| waiting.count).sum();
    let (snapshot, group) = (state.services.engine.snapshot(), group_of(&entry.definition));
    let row = |schedule| ScheduleRow::of(schedule).with_pauses(&snapshot.pauses, group.clone());
    let is_more_known = |pause: &Pause| pause.until.is_some() || !pause.origin().is_empty();
    render(&DefinitionPage {
        frame: Frame::new(&state, "definitions", &name),
        waiting,
        limits: limits::rows(&definition, &current, waiting),
        has_more_limits: limits::may_have_more(&definition),
        bars: chart::runs(&runs),
        summary: chart::summary(&runs),
        runs: runs.into_iter().take(10).map(Row::of).collect(),
        pause: own_pause(&definition),
        paused_by: definition.pauses.iter().map(Pause::words).collect(),
        origins: definition.pauses.iter().filter(|it| is_more_known(it)).map(PauseLine::of).collect(),
        schedules: definition.schedules.iter().cloned().map(row).collect(),
        facts: facts(&definition).into_iter().map(|(name, value)| (name, ShownValue::of(value))).collect(),
        keys: revisions::keys(entry),
        missed: missed(&definition),
        stale_since: expect.and_then(|expect| expect.stale_since).map(format::moment),
        slow_since: expect.and_then(|expect| expect.slow_since).map(format::moment),
        slow_job: expect.and_then(|expect| expect.slow_job),
        expected: expect.map(expected).unwrap_or_default(),
        needs_params: definition.params.iter().any(|param| param.required),
        form: RunForm::of_definition(entry),
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
        ("success", success(&definition.success_exit_codes)),
        ("overlap", definition.overlap.to_string()),
        ("catch up", catch_up(definition)),
        ("on lost", format!("{} after {}", definition.on_lost, format::span_ms(definition.lost_after_ms))),
        ("memory", definition.memory_bytes.map(format::bytes).unwrap_or_default()),
        ("concurrency", definition.concurrency.as_ref().map(concurrency).unwrap_or_default()),
        ("rate limit", definition.rate_limit.as_ref().map(rate).unwrap_or_default()),
        ("expect", definition.expect.as_ref().map(expected).unwrap_or_default()),
        ("owner", definition.owner.clone().unwrap_or_default()),
        ("tags", definition.tags.join(", ")),
        ("file", definition.file.clone().unwrap_or_default()),
        ("revision", definition.revision.clone()),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// The exit codes of a success; empty if 0 is the only one.
fn success(codes: &[i32]) -> String {
    let others: Vec<String> = codes.iter().map(|code| format!(", {code}")).collect();
    if others.is_empty() { String::new() } else { format!("exit code 0{}", others.concat()) }
}

/// The treatment of slots that passed while no server ran; empty without schedules.
fn catch_up(definition: &Definition) -> String {
    let window = format::span_ms(definition.catch_up_window_ms);
    match &*definition.catch_up {
        _ if definition.schedules.is_empty() => String::new(),
        "none" => "none".to_owned(),
        "latest" => format!("latest, within {window}"),
        mode => format!("{mode} within {window}, at most {}", definition.catch_up_limit),
    }
}

fn expected(expect: &Expectation) -> String {
    let within = expect.success_within_ms.map(|ms| format!("a success within {}", format::span_ms(ms)));
    let max = expect.max_duration_ms.map(|ms| format!("runs of at most {}", format::span_ms(ms)));
    within.into_iter().chain(max).collect::<Vec<_>>().join(", ")
}

fn concurrency(rule: &Concurrency) -> String {
    let group = rule.group.as_ref().map(|group| format!(" in the group {group}"));
    let key = rule.key.as_ref().map(|key| format!(" for each {key}"));
    format!("{} at once{}{}", rule.limit, group.unwrap_or_default(), key.unwrap_or_default())
}

fn rate(rule: &RateLimit) -> String {
    let key = rule.key.as_ref().map(|key| format!(" for each {key}")).unwrap_or_default();
    format!("{} starts within {}{key}", rule.limit, format::span_ms(rule.per_ms))
}
