//! `/workers` and `/workers/{id}`.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::jobs::Row;
use super::page::{Frame, render};
use crate::http::api::{jobs, workers};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::Worker;
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::state::AppState;

/// A worker as a row.
pub(crate) struct WorkerRow {
    pub(crate) worker: Worker,
    pub(crate) tone: &'static str,
    pub(crate) since: Moment,
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
    shows_all: bool,
    connected: usize,
    slots: u64,
    busy: u64,
}

/// `GET /workers?all=1`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let shows_all = query.switch("all")?;
    query.finish()?;
    let uri = if shows_all { Uri::from_static("/?all=1") } else { Uri::from_static("/") };
    let workers = workers::list(State(Arc::clone(&state)), uri).await?.0;
    let connected = workers.iter().filter(|worker| worker.connected);
    render(&WorkersPage {
        frame: Frame::new(&state, "workers", "Workers"),
        connected: connected.clone().count(),
        slots: connected.clone().map(|worker| u64::from(worker.slots)).sum(),
        busy: connected.map(|worker| u64::from(worker.busy)).sum(),
        rows: workers.into_iter().map(WorkerRow::of).collect(),
        shows_all,
    })
}

#[derive(Template)]
#[template(path = "worker.html")]
struct WorkerPage {
    frame: Frame,
    row: WorkerRow,
    running: Vec<Row>,
    last: Vec<Row>,
}

/// `GET /workers/{id}`
pub(crate) async fn one(State(state): State<Arc<AppState>>, Id(id): Id) -> Result<Response, Problem> {
    let worker = workers::one(State(Arc::clone(&state)), Id(id)).await?.0;
    let of_worker = |states: &str, limit: &str| {
        let id = id.to_string();
        let pairs = [("worker", id.as_str()), ("state", states), ("limit", limit)];
        Query::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    };
    let running = jobs::page(&state, of_worker("assigned,running", "100")).await?.jobs;
    let last = jobs::page(&state, of_worker("succeeded,failed,cancelled,expired,lost", "20")).await?.jobs;
    render(&WorkerPage {
        frame: Frame::new(&state, "workers", &worker.name),
        row: WorkerRow::of(worker),
        running: running.into_iter().map(Row::of).collect(),
        last: last.into_iter().map(Row::of).collect(),
    })
}
