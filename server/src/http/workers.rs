//! Workers: who is there, and what an operator may do with them.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use protocol::report::Availability;
use protocol::wire::SLOTS_MAX;
use protocol::{ClusterId, Fence, JobId, WorkerId};
use scheduler::input::Operation;
use scheduler::snapshot::WorkerFacts;
use scheduler::step::{Answer, WorkerRow};
use serde::Deserialize;

use super::body;
use super::code::Code;
use super::desk::Desk;
use super::jobs::unexpected;
use super::labels::{self, Labels};
use super::path::{Id, IdAndVerb};
use super::problem::{Problem, shown};
use super::query::{self, Query};
use super::show;
use super::view::{self, Time};

pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
) -> Result<Json<Vec<view::Worker>>, Problem> {
    let mut query = Query::of(&uri)?;
    let all = query.switch("all")?;
    query.finish()?;
    let snapshot = desk.app.engine.snapshot();
    let mut workers: Vec<view::Worker> =
        snapshot.workers.iter().map(|it| at_work(&desk, it, snapshot.cluster)).collect();
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
    slots: Option<u32>,
    labels: Option<Labels>,
}

pub(super) async fn change(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let wish: Wish = body::json(&parts.headers, body).await?;
    let slots = wish.slots.map(slots).transpose()?;
    let labels = wish.labels.map(Labels::checked).transpose()?;
    // Labels first: only they can still be refused, and then nothing has changed.
    let mut operations = labels.into_iter().chain(slots);
    let (first, second) = (operations.next(), operations.next());
    let Some(first) = first else {
        return Err(Problem::new(Code::MissingField, "nothing is to be changed: there are slots and labels"));
    };
    let response = perform(&desk, WorkerId(id), first).await?;
    match second {
        Some(second) => perform(&desk, WorkerId(id), second).await,
        None => Ok(response),
    }
}

fn slots(slots: u32) -> Result<Operation, Problem> {
    if !(1..=SLOTS_MAX).contains(&slots) {
        let detail = format!("{slots} is not within 1 to {SLOTS_MAX}");
        return Err(Problem::new(Code::OutOfRange, detail)
            .field("slots")
            .hint("to give a worker nothing more, cordon it"));
    }
    Ok(Operation::Slots(slots))
}

pub(super) async fn operate(
    State(desk): State<Arc<Desk>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let operation = match verb.as_str() {
        "cordon" => Operation::Cordon,
        "uncordon" => Operation::Uncordon,
        "drain" => Operation::Drain(query.duration("deadline", DRAIN_MAX)?),
        "forget" => Operation::Forget,
        "stop-unmanaged" => stop_unmanaged(&mut query)?,
        other => {
            return Err(Problem::new(
                Code::NotFound,
                format!("\"{}\" is nothing that can be done with a worker", shown(other)),
            )
            .hint("the verbs are cordon, uncordon, drain, forget and stop-unmanaged"));
        }
    };
    query.finish()?;
    body::none(body).await?;
    perform(&desk, WorkerId(id), operation).await
}

/// Which of the attempts that were never given here: all, or the one that is named by its job and its fence.
fn stop_unmanaged(query: &mut Query) -> Result<Operation, Problem> {
    match (query.number("job")?, query.number("fence")?) {
        (None, None) => Ok(Operation::StopUnmanaged(None)),
        (Some(job), Some(fence)) => Ok(Operation::StopUnmanaged(Some((JobId(job), Fence(fence))))),
        (Some(_), None) => Err(query::wrong("fence", "an attempt is named by its job and its fence")),
        (None, Some(_)) => Err(query::wrong("job", "an attempt is named by its job and its fence")),
    }
}

async fn perform(desk: &Desk, worker: WorkerId, operation: Operation) -> Result<Response, Problem> {
    match desk.app.engine.operate(worker, operation.clone()).await? {
        Answer::Done => {
            // Nowhere else is it written down: there may be no job that it could be kept with.
            if let Operation::StopUnmanaged(which) = &operation {
                tracing::warn!(%worker, ?which, "an operator has attempts stopped that were never given here");
            }
        }
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(unexpected(&answer)),
    }
    if operation == Operation::Forget {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(find(desk, worker).await?).into_response())
}

async fn find(desk: &Desk, id: WorkerId) -> Result<view::Worker, Problem> {
    let rows = desk.read(|archive| archive.workers()).await?;
    let row = rows.iter().find(|row| row.worker == id);
    let snapshot = desk.app.engine.snapshot();
    let live = snapshot.workers.iter().find(|worker| worker.id == id);
    let shown = match (live, row) {
        (Some(facts), row) => {
            let joined_at = row.map(|row| Time(row.joined_at));
            view::Worker { joined_at, ..at_work(desk, facts, snapshot.cluster) }
        }
        (None, Some(row)) => view::Worker { joined_at: Some(Time(row.joined_at)), ..gone(row) },
        (None, None) => return Err(Problem::new(Code::UnknownWorker, format!("there is no worker {id}"))),
    };
    Ok(shown)
}

fn at_work(desk: &Desk, facts: &WorkerFacts, cluster: ClusterId) -> view::Worker {
    let machine = facts.session.and_then(|session| desk.app.machines.of(session)).unwrap_or_default();
    view::Worker {
        id: facts.id.0,
        name: facts.name.to_string(),
        working: facts.busy > 0,
        connected: facts.session.is_some(),
        state: facts.state.name().into(),
        cordoned: facts.cordoned,
        drain_deadline: facts.drain_deadline.map(Time),
        slots: facts.slots,
        busy: facts.busy,
        backlog: facts.backlog,
        queued: facts.queued,
        since: Time(facts.since),
        labels: labels::laid_over(&facts.own_labels, &facts.set_labels),
        labels_set: facts.set_labels.iter().cloned().collect(),
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
        engine_id: machine.engine.map(|id| id.to_string()),
        load_milli: machine.load_milli,
        disk_free_bytes: machine.disk_free_bytes,
        unmanaged: facts
            .unmanaged
            .iter()
            .take(UNMANAGED_SHOWN)
            .map(|(token, phase)| view::Unmanaged {
                job: token.job.0,
                fence: token.fence.0,
                container: token.container_name(cluster),
                phase: show::phase(*phase),
            })
            .collect(),
        copies: facts.copies.clone(),
        joined_at: None,
    }
}

/// More than a person looks at one by one.
const UNMANAGED_SHOWN: usize = 1_000;

fn gone(row: &WorkerRow) -> view::Worker {
    view::Worker {
        id: row.worker.0,
        name: row.name.to_string(),
        state: if row.drain.is_some() { "drained".into() } else { "gone".into() },
        cordoned: row.cordoned,
        slots: row.slots.unwrap_or_default(),
        labels: row.labels.iter().cloned().collect(),
        labels_set: row.labels.iter().cloned().collect(),
        since: Time(row.seen_at),
        ..view::Worker::default()
    }
}

/// A drain that may take longer needs no deadline.
const DRAIN_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
