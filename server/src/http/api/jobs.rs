//! `GET /api/jobs`, `GET` and `PATCH /api/jobs/{id}`, and cancel and release of one job.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::JobId;
use scheduler::input::JobUpdate;
use scheduler::job::State as JobState;
use scheduler::step::{Answer, Rejection};
use tokio::time::Instant;

use super::job_export::{ExportFormat, export};
use super::job_list::listed_page;
use crate::auth::Denial;
use crate::auth::actor::Actor;
use crate::auth::role::Permission;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::body;
use crate::http::request::job_request;
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::request::submission;
use crate::http::state::AppState;
use crate::listener::Peer;
use crate::store::JobRecord;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri)?;
    if let Some(format) = ExportFormat::of(&headers) {
        return export(&state, query, format).await;
    }
    let mut response = listed_page(&state, query).await?.into_answer(&state, "jobs", &uri);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Json<shapes::FullJob>, Problem> {
    let mut query = Query::of(&uri)?;
    let timeout = query.wait()?;
    query.finish()?;
    let job = JobId(id);
    let mut record = find(&state, job).await?;
    if let Some(timeout) = timeout.filter(|_| !record.row.state.has_ended()) {
        wait_until_ended(&state, job, timeout).await?;
        record = find(&state, job).await?;
    }
    Ok(Json(state.full_job(record).await))
}

pub(crate) async fn cancel(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let job = JobId(id);
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    check_scope(&state, job).await?;
    let status = match state.services.engine.cancel(job, requester(&parts)).await? {
        Answer::CancelRequested { state } if state.has_ended() => StatusCode::OK,
        Answer::CancelRequested { .. } => StatusCode::ACCEPTED,
        Answer::Rejected(Rejection::NotLive) => return answer_repeated_cancel(&state, job).await,
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(Problem::unexpected_answer(&answer)),
    };
    let record = find(&state, job).await?;
    let full = state.full_job(record).await;
    Ok((status, Json(full)).into_response())
}

pub(crate) async fn release(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::FullJob>, Problem> {
    let job = JobId(id);
    Actor::current().check(Permission::Operate)?;
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    check_scope(&state, job).await?;
    let answer = state.services.engine.release(job, requester(&parts)).await?;
    changed(&state, job, answer).await
}

pub(crate) async fn update(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::FullJob>, Problem> {
    let job = JobId(id);
    let (parts, body) = request.into_parts();
    Query::of(&parts.uri)?.finish()?;
    let update = job_request::read_update(&parts.headers, body).await?;
    check_scope(&state, job).await?;
    check_allowed(&state, job, &update).await?;
    let answer = state.services.engine.update(job, update, requester(&parts)).await?;
    changed(&state, job, answer).await
}

/// Refuses a change of a field that submissions may not set (`allow`), unless an operator makes it.
async fn check_allowed(state: &AppState, job: JobId, update: &JobUpdate) -> Result<(), Problem> {
    if Actor::current().check(Permission::Operate).is_ok() {
        return Ok(());
    }
    let name = find(state, job).await?.row.definition;
    match state.services.catalogue.current().find(&name) {
        Some(entry) => submission::check_update(&entry.definition, update),
        None => {
            let detail =
                "the definition is no longer in jobs.yaml, so nothing says what a submission may set";
            Err(Problem::new(ProblemCode::OverrideNotAllowed, detail).hint("an operator can change the job"))
        }
    }
}

/// The job after a change, if the scheduler made it.
async fn changed(state: &AppState, job: JobId, answer: Answer) -> Result<Json<shapes::FullJob>, Problem> {
    match answer {
        Answer::Done => {}
        Answer::Rejected(Rejection::NotLive) => return Err(already_finished(&find(state, job).await?)),
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(Problem::unexpected_answer(&answer)),
    }
    let record = find(state, job).await?;
    Ok(Json(state.full_job(record).await))
}

/// Refuses to act on a job outside of the scope of the request's token.
///
/// # Errors
/// `out_of_scope`; for a token with a scope also those of [`find`].
pub(crate) async fn check_scope(state: &AppState, job: JobId) -> Result<(), Problem> {
    let actor = Actor::current();
    if actor.has_whole_scope() {
        return Ok(());
    }
    Ok(actor.check_scope(&find(state, job).await?.row.definition)?)
}

/// The requester, as it is stored with the job: `http`, its address, and the name of its token.
pub(crate) fn requester(parts: &Parts) -> String {
    let address = parts.extensions.get::<Peer>().map(|peer| format!(" {}", peer.address.ip()));
    let token = Actor::current().token.as_ref().map(|name| format!(" token {name}"));
    format!("http{}{}", address.unwrap_or_default(), token.unwrap_or_default())
}

/// Waits until a job has ended, the time is up, or the server shuts down.
///
/// # Errors
/// The token of the request was revoked, or has expired, or its session has ended meanwhile.
pub(crate) async fn wait_until_ended(state: &AppState, job: JobId, timeout: Duration) -> Result<(), Denial> {
    let actor = Actor::current();
    tokio::select! {
        biased;
        () = actor.ended() => return Err(Denial::NoToken),
        // The caller reads the job afterwards in any case.
        _ = tokio::time::timeout(timeout, retry_until_answered(|| state.services.engine.ended(job))) => {}
        () = state.services.shutdown.cancelled() => {}
    }
    Ok(())
}

/// Repeats a question to the engine until it is answered.
async fn retry_until_answered<T, E, F: Future<Output = Result<T, E>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

/// Finds the job after a wait. Retries for some seconds while the store cannot be read.
pub(crate) async fn find_with_retries(state: &AppState, job: JobId) -> Result<JobRecord, Problem> {
    let by = Instant::now() + FIND_WITHIN;
    loop {
        match find(state, job).await {
            Err(problem) if problem.code().status().is_server_error() && Instant::now() < by => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            found => return found,
        }
    }
}

/// Finds a job with attempts and notes.
///
/// # Errors
/// `job_not_found`, or `pruned` if it has been removed.
pub(crate) async fn find(state: &AppState, job: JobId) -> Result<JobRecord, Problem> {
    if let Some(record) = state.read(move |archive| archive.job(job)).await? {
        return Ok(record);
    }
    match state.read(move |archive| archive.was_removed(job)).await? {
        true => Err(Problem::new(
            ProblemCode::Pruned,
            format!("job {job} has ended, and has been removed since"),
        )
        .hint(
            "ended jobs are kept for a limited time, and in a limited number (--keep-jobs, --keep-jobs-max)",
        )),
        false => Err(Problem::new(ProblemCode::JobNotFound, format!("there is no job {job}"))
            .hint("GET /api/jobs lists the jobs")),
    }
}

/// A second cancel of a cancelled job succeeds; a cancel of a job that ended otherwise is a conflict.
async fn answer_repeated_cancel(state: &AppState, job: JobId) -> Result<Response, Problem> {
    let record = find(state, job).await?;
    if record.row.state == JobState::Cancelled {
        let full = state.full_job(record).await;
        return Ok(Json(full).into_response());
    }
    Err(already_finished(&record))
}

/// The conflict of an operation on an ended job.
pub(crate) fn already_finished(record: &JobRecord) -> Problem {
    let (job, state) = (record.row.job, record.row.state.name());
    Problem::new(ProblemCode::AlreadyFinished, format!("job {job} has ended as {state}"))
        .state(state)
        .hint("to run it once more, retry it")
}

/// Pause between two tries to get an answer, and the time for all tries of a request that has waited already.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const FIND_WITHIN: Duration = Duration::from_secs(5);

/// The `Location` header of a job.
pub(crate) fn location(state: &AppState, job: JobId) -> HeaderMap {
    let location = HeaderValue::try_from(format!("{}/api/jobs/{job}", state.services.base_path));
    location.map(|location| HeaderMap::from_iter([(header::LOCATION, location)])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_busy_engine_is_asked_again_each_second() {
        let (begun, asked) = (Instant::now(), Cell::new(0));
        let answer = retry_until_answered(|| {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() < 4 { Err(()) } else { Ok("ended") })
        });
        assert_eq!((answer.await, begun.elapsed().as_secs()), ("ended", 3));
    }
}
