//! `/workers` and `/workers/{id}`.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::jobs::{ENDED_STATES, Row};
use super::page::{Frame, render, see_other};
use super::page_links::PageLinks;
use crate::excerpt::excerpt;
use crate::http::api::{job_list, workers};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Exclusion, Intervention, ResourceAmounts, Worker, WorkerResources};
use crate::http::request::job_filter::find_worker_named;
use crate::http::request::path::{self, Id, Name};
use crate::http::request::query::Query;
use crate::http::state::AppState;

/// A worker as a row.
pub(crate) struct WorkerRow {
    pub(crate) worker: Worker,
    pub(crate) tone: &'static str,
    pub(crate) since: Moment,
    /// The time at which its cordon ends by itself.
    pub(crate) cordon_end: Option<Moment>,
    pub(crate) load: String,
    pub(crate) disk: String,
    /// Runtimes that do not answer, with the cause.
    pub(crate) away: Vec<String>,
}

impl WorkerRow {
    pub(crate) fn of(worker: Worker) -> Self {
        let away = worker.runtimes.iter().filter(|runtime| !runtime.available);
        Self {
            tone: format::tone(&worker.state),
            since: format::moment(worker.since),
            cordon_end: worker.cordon.as_ref().and_then(|cordon| cordon.until).map(format::moment),
            load: worker.load_milli.map(load).unwrap_or_default(),
            disk: worker.disk_free_bytes.map(format::bytes).unwrap_or_default(),
            away: away
                .map(|runtime| match &runtime.reason {
                    Some(reason) => format!("{}: {reason}", runtime.name),
                    None => format!("{} does not answer", runtime.name),
                })
                .collect(),
            worker,
        }
    }
}

fn load(milli: u32) -> String {
    format!("{}.{:02}", milli / 1_000, milli % 1_000 / 10)
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    rows: Vec<WorkerRow>,
    pages: PageLinks,
    shows_all: bool,
    page: Option<u64>,
    connected: u64,
    slots: u64,
    busy: u64,
}

/// Workers of a page.
const PAGE: usize = 50;

/// `GET /workers?all=1&page=`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let shows_all = query.switch("all")?;
    let page = query.number("page")?;
    query.finish()?;
    let uri = if shows_all { Uri::from_static("/?all=1") } else { Uri::from_static("/") };
    let mut workers = workers::list(State(Arc::clone(&state)), uri).await?.0;
    let of_connected = |count: fn(&Worker) -> u64| -> u64 {
        workers.iter().filter(|worker| worker.connected).map(count).sum()
    };
    let connected = of_connected(|_| 1);
    let (slots, busy) =
        (of_connected(|worker| worker.slots.into()), of_connected(|worker| worker.busy.into()));
    render(&WorkersPage {
        frame: Frame::new(&state, "workers", "Workers"),
        connected,
        slots,
        busy,
        pages: PageLinks::cut(&mut workers, page, PAGE),
        rows: workers.into_iter().map(WorkerRow::of).collect(),
        shows_all,
        page,
    })
}

/// Why a worker is suspect.
struct SuspectRow {
    cause: String,
    /// The thresholds.
    rule: String,
    since: Moment,
    until: Option<Moment>,
}

/// When a worker was cordoned or drained, until when, and by whom and why.
struct CordonLine {
    since: Moment,
    until: Option<Moment>,
    why: String,
    reason: String,
}

impl CordonLine {
    fn of(cordon: &Intervention) -> Self {
        Self {
            since: format::moment(cordon.since),
            until: cordon.until.map(format::moment),
            why: cordon.origin(),
            reason: cordon.reason.clone().unwrap_or_default(),
        }
    }
}

/// Jobs that a worker is not offered.
struct ExclusionRow {
    of: String,
    /// The page of the definition, below the base path; empty for other exclusions.
    link: String,
    reason: String,
    until: Option<Moment>,
}

fn exclusion_row(exclusion: &Exclusion) -> ExclusionRow {
    let name = exclusion.name.as_deref();
    let (of, link) = match (&*exclusion.of, name) {
        ("revision", Some(name)) => (name.to_owned(), format!("/definitions/{name}")),
        ("revision", None) => (exclusion.revision.clone().unwrap_or_default(), String::new()),
        ("runtime", name) => (format!("all jobs of {}", name.unwrap_or_default()), String::new()),
        _ => ("all jobs".to_owned(), String::new()),
    };
    let until = exclusion.until.map(format::moment);
    ExclusionRow { of, link, reason: exclusion.reason.to_string(), until }
}

/// Each resource that the worker offers or that is reserved: its name, what is reserved, and what is offered.
fn resource_rows(resources: &WorkerResources) -> Vec<(String, String, String)> {
    let (offered, reserved) = (&resources.offered, &resources.reserved);
    let any = || "not counted".to_owned();
    let of = |amounts: &ResourceAmounts, name: &str| amounts.custom.get(name).copied().unwrap_or_default();
    let mut rows = vec![
        (
            "Cores".to_owned(),
            cores(reserved.cpus_milli.unwrap_or_default()),
            offered.cpus_milli.map_or_else(any, cores),
        ),
        (
            "Memory".to_owned(),
            format::bytes(reserved.memory_bytes.unwrap_or_default()),
            offered.memory_bytes.map_or_else(any, format::bytes),
        ),
    ];
    if !offered.gpus.is_empty() || !reserved.gpus.is_empty() {
        rows.push(("GPUs".to_owned(), reserved.gpus.join(", "), offered.gpus.join(", ")));
    }
    for name in offered.custom.keys() {
        rows.push((name.clone(), of(reserved, name).to_string(), of(offered, name).to_string()));
    }
    rows
}

fn cores(milli: u64) -> String {
    format!("{}.{:03}", milli / 1_000, milli % 1_000).trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[derive(Template)]
#[template(path = "worker.html")]
struct WorkerPage {
    frame: Frame,
    row: WorkerRow,
    suspect: Option<SuspectRow>,
    exclusions: Vec<ExclusionRow>,
    /// The origin of its cordon or drain.
    cordon: Option<CordonLine>,
    drain_deadline: Option<Moment>,
    revoked: Option<Moment>,
    /// Resources that jobs may reserve: name, reserved, offered.
    resources: Vec<(String, String, String)>,
    running: Vec<Row>,
    last: Vec<Row>,
}

/// `GET /workers/{id}`, and `GET /workers/{name}`, which leads to the number. Digits alone are always a number.
pub(crate) async fn one(State(state): State<Arc<AppState>>, Name(text): Name) -> Result<Response, Problem> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return named(&state, text).await;
    }
    let Id(id) = path::id(&text)?;
    let worker = workers::one(State(Arc::clone(&state)), Id(id)).await?.0;
    let of_worker = |states: &str, limit: &str| {
        let id = id.to_string();
        let pairs = [("worker", id.as_str()), ("state", states), ("limit", limit)];
        Query::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    };
    let running = job_list::page(&state, of_worker("assigned,running", "100")).await?.entries;
    let last = job_list::page(&state, of_worker(ENDED_STATES, "20")).await?.entries;
    render(&WorkerPage {
        frame: Frame::new(&state, "workers", &worker.name),
        suspect: worker.suspect.as_ref().map(|it| SuspectRow {
            cause: it.cause.clone(),
            rule: it.rule.clone(),
            since: format::moment(it.since),
            until: it.until.map(format::moment),
        }),
        exclusions: worker.exclusions.iter().map(exclusion_row).collect(),
        cordon: worker.cordon.as_ref().map(CordonLine::of),
        drain_deadline: worker.drain_deadline.map(format::moment),
        revoked: worker.revoked_at.map(format::moment),
        resources: worker.resources.as_ref().map(resource_rows).unwrap_or_default(),
        row: WorkerRow::of(worker),
        running: running.into_iter().map(Row::listed).collect(),
        last: last.into_iter().map(Row::listed).collect(),
    })
}

/// Leads to the page of the worker of this name.
async fn named(state: &AppState, name: String) -> Result<Response, Problem> {
    let unknown = format!("no worker was ever called \"{}\"", excerpt(&name));
    match find_worker_named(state, name).await? {
        Some(id) => Ok(see_other(&state.services.base_path, &format!("/workers/{id}"))),
        None => {
            Err(Problem::new(ProblemCode::UnknownWorker, unknown)
                .hint("GET /workers?all=1 lists the workers"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_written_without_needless_digits() {
        for (milli, text) in [(0, "0"), (2_000, "2"), (1_500, "1.5"), (10_005, "10.005")] {
            assert_eq!(cores(milli), text);
        }
    }
}
