//! Workers: who is there, and what an operator may do with them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use protocol::WorkerId;
use protocol::report::Availability;
use protocol::wire::SLOTS_MAX;
use scheduler::input::Operation;
use scheduler::snapshot::{WorkerFacts, WorkerState};
use scheduler::step::{Answer, WorkerRow};
use serde::Deserialize;

use super::body;
use super::code::Code;
use super::desk::Desk;
use super::jobs::unexpected;
use super::path::{Id, IdAndVerb};
use super::problem::{Problem, shown};
use super::query::Query;
use super::view::{self, Time};

pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
) -> Result<Json<Vec<view::Worker>>, Problem> {
    let mut query = Query::of(&uri)?;
    let all = query.switch("all")?;
    query.finish()?;
    let snapshot = desk.app.engine.snapshot();
    let mut workers: Vec<view::Worker> = snapshot.workers.iter().map(at_work).collect();
    if all {
        let rows = desk.read(|archive| archive.workers()).await?;
        let known = |row: &WorkerRow| snapshot.workers.iter().any(|worker| worker.id == row.worker);
        workers.extend(rows.iter().filter(|row| !known(row)).map(gone));
        workers.sort_by_key(|worker| worker.id);
    }
    Ok(Json(workers))
}

pub(super) async fn one(State(desk): State<Arc<Desk>>, Id(id): Id) -> Result<Json<view::Worker>, Problem> {
    find(&desk, WorkerId(id)).await.map(Json)
}

/// What a PATCH may change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    slots: u32,
}

pub(super) async fn change(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let wish: Wish = body::json(&parts.headers, body).await?;
    if !(1..=SLOTS_MAX).contains(&wish.slots) {
        let detail = format!("{} is not within 1 to {SLOTS_MAX}", wish.slots);
        return Err(Problem::new(Code::OutOfRange, detail)
            .field("slots")
            .hint("to give a worker nothing more, cordon it"));
    }
    perform(&desk, WorkerId(id), Operation::Slots(wish.slots)).await
}

pub(super) async fn operate(
    State(desk): State<Arc<Desk>>,
    IdAndVerb(id, verb): IdAndVerb,
) -> Result<Response, Problem> {
    let operation = match verb.as_str() {
        "cordon" => Operation::Cordon,
        "uncordon" => Operation::Uncordon,
        "drain" => Operation::Drain,
        "forget" => Operation::Forget,
        other => {
            return Err(Problem::new(
                Code::NotFound,
                format!("\"{}\" is nothing that can be done with a worker", shown(other)),
            )
            .hint("the verbs are cordon, uncordon, drain and forget"));
        }
    };
    perform(&desk, WorkerId(id), operation).await
}

async fn perform(desk: &Desk, worker: WorkerId, operation: Operation) -> Result<Response, Problem> {
    match desk.app.engine.operate(worker, operation.clone()).await? {
        Answer::Done => {}
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(unexpected(&answer)),
    }
    if operation == Operation::Forget {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut shown = find(desk, worker).await?;
    // It is done, whether or not the snapshot shows it already.
    match operation {
        Operation::Cordon => shown.cordoned = true,
        Operation::Uncordon => shown.cordoned = false,
        Operation::Drain if shown.connected => shown.state = WorkerState::Draining.name().into(),
        Operation::Slots(slots) => shown.slots = slots,
        Operation::Drain | Operation::Forget => {}
    }
    Ok(Json(shown).into_response())
}

async fn find(desk: &Desk, id: WorkerId) -> Result<view::Worker, Problem> {
    let rows = desk.read(|archive| archive.workers()).await?;
    let row = rows.iter().find(|row| row.worker == id);
    let snapshot = desk.app.engine.snapshot();
    let live = snapshot.workers.iter().find(|worker| worker.id == id);
    let shown = match (live, row) {
        (Some(facts), row) => {
            view::Worker { joined_at: row.map(|row| Time(row.joined_at)), ..at_work(facts) }
        }
        (None, Some(row)) => view::Worker { joined_at: Some(Time(row.joined_at)), ..gone(row) },
        (None, None) => return Err(Problem::new(Code::UnknownWorker, format!("there is no worker {id}"))),
    };
    Ok(shown)
}

fn at_work(facts: &WorkerFacts) -> view::Worker {
    view::Worker {
        id: facts.id.0,
        name: facts.name.to_string(),
        working: facts.busy > 0,
        connected: facts.session.is_some(),
        state: facts.state.name().into(),
        cordoned: facts.cordoned,
        slots: facts.slots,
        busy: facts.busy,
        backlog: facts.backlog,
        queued: facts.queued,
        since: Time(facts.since),
        labels: facts.labels.iter().cloned().collect(),
        runtimes: facts
            .runtimes
            .iter()
            .map(|(kind, availability)| view::Runtime {
                name: kind.name().into(),
                available: availability.is_available(),
                reason: match availability {
                    Availability::Available => None,
                    Availability::Unavailable(why) => Some(why.clone()),
                },
            })
            .collect(),
        version: facts.version.clone(),
        address: facts.address.clone(),
        joined_at: None,
    }
}

fn gone(row: &WorkerRow) -> view::Worker {
    view::Worker {
        id: row.worker.0,
        name: row.name.to_string(),
        state: "gone".into(),
        cordoned: row.cordoned,
        slots: row.slots.unwrap_or_default(),
        since: Time(row.seen_at),
        ..view::Worker::default()
    }
}
