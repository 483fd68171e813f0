//! Batches: jobs that were submitted together. `submit_many` and `array` make them, and `retry` makes one of another; here they are
//! listed, waited for and cancelled.

pub(crate) mod array;
mod change;
mod explain;
mod retry;
mod right_to_replace;
pub(crate) mod submit_many;

pub(crate) use crate::http::request::batch::find;
pub(crate) use change::{change, has_ended};
pub(crate) use explain::explain;
pub(crate) use retry::{last_batch_retry, turn, unique_of};

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;

use crate::auth::Denial;
use crate::auth::actor::Actor;
use crate::excerpt::excerpt;
use crate::http::api::{bulk, pauses};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::batch::summary;
use crate::http::present::presenter::dependency;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::job_filter::{label, not_empty};
use crate::http::request::paging::{Page, limit};
use crate::http::request::path::{Id, IdAndVerb};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{BatchFailures, BatchFilter, BatchState, DEPENDENCIES_SHOWN};

/// `GET /api/batches`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    Ok(page(&state, Query::of(&uri)?).await?.into_answer(&state, "batches", &uri))
}

/// Reads the page of batches that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_state`, `invalid_cursor`, `invalid_limit`, and those of a read.
pub(crate) async fn page(state: &AppState, mut query: Query) -> Result<Page<shapes::BatchSummary>, Problem> {
    let mut filter = BatchFilter {
        name: query.text("name")?,
        unique_key: not_empty(&mut query, "unique_key")?,
        submitted_by: not_empty(&mut query, "submitted_by")?,
        label: query.text("label")?.as_deref().map(label).transpose()?,
        states: query.text("state")?.as_deref().map_or(Ok(Vec::new()), states)?,
        before: query.text("cursor")?.as_deref().map(cursor::read).transpose()?,
        limit: query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?,
    };
    query.finish()?;
    let limit = filter.limit;
    // One extra row shows whether there is a next page.
    filter.limit += 1;
    let mut rows = state.read(move |archive| archive.batches(&filter)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor::write(row.first));
    let snapshot = state.services.engine.snapshot();
    Ok(Page { entries: rows.into_iter().map(|row| summary(row, &snapshot.pauses)).collect(), next })
}

/// `GET /api/batches/{id}`
pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Json<shapes::FullBatch>, Problem> {
    let mut query = Query::of(&uri)?;
    let timeout = query.wait()?;
    query.finish()?;
    if let Some(timeout) = timeout {
        wait_until_ended(&state, JobId(id), timeout).await?;
    }
    full(&state, JobId(id)).await.map(Json)
}

/// `POST /api/batches/{id}/{verb}`
pub(crate) async fn operate(
    State(state): State<Arc<AppState>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    if !matches!(verb.as_str(), "cancel" | "retry" | "pause" | "resume") {
        let detail = format!("there is no operation \"{}\" on batches", excerpt(&verb));
        return Err(Problem::new(ProblemCode::NotFound, detail)
            .hint("the operations are cancel, retry, pause and resume"));
    }
    let batch = find(&state, JobId(id)).await?;
    match verb.as_str() {
        "cancel" => bulk::cancel_batch(state, batch.first, request).await,
        "pause" | "resume" => pauses::pause_batch(&state, &batch, verb == "pause", request).await,
        _ => retry::retry(&state, &batch, request).await,
    }
}

/// The batch with its first failures, all of them by outcome, and the jobs that come after it.
///
/// # Errors
/// `batch_not_found`, and those of a read.
pub(crate) async fn full(state: &AppState, first: JobId) -> Result<shapes::FullBatch, Problem> {
    let row = find(state, first).await?;
    let failures = match row.counts.failures() {
        0 => BatchFailures::default(),
        _ => state.read(move |archive| archive.batch_failures(first, FAILURES_SHOWN)).await?,
    };
    let dependents = state.read(move |archive| archive.batch_dependents(first, DEPENDENCIES_SHOWN)).await?;
    let presenter = state.presenter();
    let outcomes = failures.outcomes.into_iter();
    Ok(shapes::FullBatch {
        batch: summary(row, &state.services.engine.snapshot().pauses),
        failures: failures.first.into_iter().map(|row| presenter.member(row)).collect(),
        outcomes: outcomes.map(|(outcome, count)| (outcome.name().to_owned(), count)).collect(),
        dependents: dependents.iter().map(dependency).collect(),
    })
}

/// Waits until a batch has ended, the time is up, or the server shuts down.
async fn wait_until_ended(state: &AppState, first: JobId, timeout: Duration) -> Result<(), Problem> {
    // Begins before the batch is read, so that no end falls in between. The end of a batch wakes the watchers of its first member.
    let mut watch = state.services.engine.watches().watch(first);
    let ended = async {
        while find(state, first).await?.ended_at.is_none() {
            watch.changed().await;
        }
        Ok(())
    };
    let actor = Actor::current();
    tokio::select! {
        biased;
        () = actor.revoked.cancelled() => Err(Denial::NoToken.into()),
        ended = tokio::time::timeout(timeout, ended) => ended.unwrap_or(Ok(())),
        () = state.services.shutdown.cancelled() => Ok(()),
    }
}

fn states(text: &str) -> Result<Vec<BatchState>, Problem> {
    let state = |name: &str| {
        BatchState::named(name).ok_or_else(|| {
            let all = BatchState::ALL.map(BatchState::name).join(", ");
            Problem::new(ProblemCode::InvalidState, format!("there is no state \"{}\"", excerpt(name)))
                .field("?state")
                .hint(format!("the states are {all}"))
        })
    };
    text.split(',').map(state).collect()
}

/// Default page size.
const LIMIT: usize = 100;

/// Failed members that are shown; `GET /api/jobs` lists all of them.
const FAILURES_SHOWN: usize = 10;
