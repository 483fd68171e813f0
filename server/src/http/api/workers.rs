//! `/api/workers`: list, details, labels and slots, and the operations of an operator.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use protocol::report::Outcome;
use protocol::wire::SLOTS_MAX;
use protocol::{Fence, JobId, WorkerId};
use scheduler::input::Operation;
use scheduler::origin::Origin;
use scheduler::step::{Answer, Rejection};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{Problem, UNKNOWN_WORKER_HINT};
use crate::http::present::shapes::{self, Time};
use crate::http::present::worker::{exclusion, live_worker, stored_worker};
use crate::http::request::body;
use crate::http::request::intervention::{self, InterventionOrder};
use crate::http::request::labels::Labels;
use crate::http::request::path::{Id, IdAndVerb};
use crate::http::request::query::{self, Query};
use crate::http::request::reason;
use crate::http::state::AppState;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Vec<shapes::Worker>>, Problem> {
    let mut query = Query::of(&uri)?;
    let all = query.switch("all")?;
    query.finish()?;
    let mut workers = live(&state);
    if all {
        let rows = state.read(|archive| archive.workers()).await?;
        let live: HashSet<u64> = workers.iter().map(|worker| worker.id).collect();
        workers.extend(rows.iter().filter(|row| !live.contains(&row.worker.0)).map(stored_worker));
        workers.sort_by_key(|worker| worker.id);
    }
    Ok(Json(workers))
}

/// The workers that are connected or hold attempts, by id.
pub(crate) fn live(state: &AppState) -> Vec<shapes::Worker> {
    let snapshot = state.services.engine.snapshot();
    snapshot.workers.iter().map(|it| live_worker(state, it, snapshot.cluster)).collect()
}

pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
) -> Result<Json<shapes::Worker>, Problem> {
    find(&state, WorkerId(id)).await.map(Json)
}

/// The body of `PATCH /api/workers/{id}`: at least one field.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerPatch {
    /// The number of containers that may run at once; 0 means the maximum, 10,000.
    slots: Option<u32>,
    /// Labels to set; null removes one that was set here.
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    labels: Option<Labels>,
}

pub(crate) async fn change(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let patch: WorkerPatch = body::json(&parts.headers, body).await?;
    let slots = patch.slots.map(slots).transpose()?;
    let labels = patch.labels.map(Labels::checked).transpose()?;
    if let Some(detail) = changes_of(patch.slots, labels.as_ref()) {
        note::detail(detail);
    }
    // Labels first: only they can still be refused for what they are, and then nothing has changed. If the server is busy in between, or the
    // client leaves, the slots stay as they were; the same request again changes both.
    let mut operations = labels.into_iter().chain(slots);
    let (first, second) = (operations.next(), operations.next());
    let Some(first) = first else {
        return Err(Problem::new(
            ProblemCode::MissingField,
            "nothing is to be changed: there are slots and labels",
        ));
    };
    let response = perform(&state, WorkerId(id), first).await?;
    match second {
        Some(second) => perform(&state, WorkerId(id), second).await,
        None => Ok(response),
    }
}

/// The keys that a change sets, for the audit log.
fn changes_of(slots: Option<u32>, labels: Option<&Operation>) -> Option<String> {
    let slots = slots.map(|slots| format!("slots {slots}"));
    let labels = match labels {
        Some(Operation::Labels(changes)) => Some(changes.iter().map(|(name, value)| match value {
            Some(value) => format!("label {name}={value}"),
            None => format!("label {name} removed"),
        })),
        _ => None,
    };
    let all: Vec<String> = slots.into_iter().chain(labels.into_iter().flatten()).collect();
    (!all.is_empty()).then(|| note::list(all))
}

/// Zero means the maximum of the protocol.
fn slots(slots: u32) -> Result<Operation, Problem> {
    if slots > SLOTS_MAX {
        let detail = format!("{slots} is not within 0 to {SLOTS_MAX}");
        return Err(Problem::new(ProblemCode::OutOfRange, detail)
            .field("slots")
            .hint("to give a worker nothing more, cordon it"));
    }
    Ok(Operation::Slots(if slots == 0 { SLOTS_MAX } else { slots }))
}

pub(crate) async fn operate(
    State(state): State<Arc<AppState>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let operation = match verb.as_str() {
        "cordon" => Operation::Cordon { until: None, origin: Origin::default() },
        "uncordon" => Operation::Uncordon,
        "drain" => Operation::Drain(query.duration("deadline", DRAIN_MAX)?, Origin::default()),
        "reset" => Operation::Reset,
        "forget" => Operation::Forget,
        "revoke" => Operation::Revoke,
        "stop-unmanaged" => stop_unmanaged(&mut query)?,
        other => {
            return Err(Problem::new(
                ProblemCode::NotFound,
                format!("\"{}\" is nothing that can be done with a worker", excerpt(other)),
            )
            .hint("the verbs are cordon, uncordon, drain, reset, revoke, forget and stop-unmanaged"));
        }
    };
    query.finish()?;
    let operation = match operation {
        Operation::Cordon { .. } => {
            let InterventionOrder { until, origin } = intervention::read(&parts.headers, body).await?;
            Operation::Cordon { until, origin }
        }
        Operation::Drain(timeout, _) => Operation::Drain(timeout, reason::read(&parts.headers, body).await?),
        other => {
            body::none(body).await?;
            other
        }
    };
    perform(&state, WorkerId(id), operation).await
}

/// Selects unmanaged attempts: all of them, or the one with this job and fence.
fn stop_unmanaged(query: &mut Query) -> Result<Operation, Problem> {
    match (query.number("job")?, query.number("fence")?) {
        (None, None) => Ok(Operation::StopUnmanaged(None)),
        (Some(job), Some(fence)) => Ok(Operation::StopUnmanaged(Some((JobId(job), Fence(fence))))),
        (Some(_), None) => Err(query::invalid_query("fence", "an attempt is named by its job and its fence")),
        (None, Some(_)) => Err(query::invalid_query("job", "an attempt is named by its job and its fence")),
    }
}

async fn perform(state: &AppState, worker: WorkerId, operation: Operation) -> Result<Response, Problem> {
    match state.services.engine.snapshot().workers.get(worker) {
        Some(facts) => note::object(format!("worker {worker} ({})", facts.name)),
        None => note::object(format!("worker {worker}")),
    }
    Actor::current().check_whole_scope()?;
    match state.services.engine.operate(worker, operation.clone()).await? {
        Answer::Done => {
            // The log is the only record: the server may have no job to which this belongs.
            if let Operation::StopUnmanaged(which) = &operation {
                tracing::warn!(%worker, ?which, "operator ordered a stop of unmanaged attempts; no job records this");
            }
        }
        Answer::Rejected(Rejection::NotUnmanaged) => {
            let Operation::StopUnmanaged(Some((job, fence))) = operation else {
                return Err(Rejection::NotUnmanaged.into());
            };
            return Err(not_unmanaged(state, worker, job, fence).await?);
        }
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(Problem::unexpected_answer(&answer)),
    }
    if operation == Operation::Forget {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(find(state, worker).await?).into_response())
}

/// Says what became of an attempt that is not among the unmanaged ones of a worker.
///
/// # Errors
/// Those of a read.
async fn not_unmanaged(
    state: &AppState,
    worker: WorkerId,
    job: JobId,
    fence: Fence,
) -> Result<Problem, Problem> {
    let record = state.read(move |archive| archive.job(job)).await?;
    let attempts = record.iter().flat_map(|record| record.past.iter().chain(&record.row.attempt));
    let attempt = attempts.into_iter().find(|attempt| attempt.fence == fence && attempt.worker == worker);
    let problem = |detail: String| Problem::new(ProblemCode::UnknownAttempt, detail);
    Ok(match attempt {
        Some(attempt) => match (attempt.ended_at, attempt.outcome) {
            (None, _) => {
                problem(format!("attempt {fence} of job {job} is one that this server gave to the worker"))
                    .hint(format!("to stop it, cancel job {job}"))
            }
            (Some(at), outcome) => {
                let hint = match outcome {
                    Some(Outcome::Lost) => "it was given up: the worker is told to stop it when it is back",
                    _ => "nothing is left to stop",
                };
                let outcome = outcome.map_or("ended", Outcome::name);
                problem(format!("attempt {fence} of job {job} has ended: {outcome} at {}", Time(at)))
                    .hint(hint)
            }
        },
        None => problem(format!(
            "the worker has no unmanaged attempt {fence} of job {job}: it has ended, or was never there"
        ))
        .hint("'unmanaged' of the worker lists those that still run"),
    })
}

async fn find(state: &AppState, id: WorkerId) -> Result<shapes::Worker, Problem> {
    let row = state.read(move |archive| archive.worker(id)).await?;
    let row = row.as_ref();
    let snapshot = state.services.engine.snapshot();
    let live = snapshot.workers.get(id);
    let shown = match (live, row) {
        (Some(facts), row) => {
            let joined_at = row.map(|row| Time(row.joined_at));
            let exclusions = facts.exclusions.iter().map(|it| exclusion(*it, &snapshot)).collect();
            shapes::Worker { joined_at, exclusions, ..live_worker(state, facts, snapshot.cluster) }
        }
        (None, Some(row)) => shapes::Worker { joined_at: Some(Time(row.joined_at)), ..stored_worker(row) },
        (None, None) => {
            let detail = format!("there is no worker {id}");
            return Err(Problem::new(ProblemCode::UnknownWorker, detail).hint(UNKNOWN_WORKER_HINT));
        }
    };
    Ok(shown)
}

/// A longer drain needs no deadline.
const DRAIN_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
