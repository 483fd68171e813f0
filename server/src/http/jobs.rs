//! Jobs that exist: the list, one of them, and the wishes to end it and to let it go on.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::{JobId, WorkerId};
use scheduler::job::State as JobState;
use scheduler::step::{Answer, Rejection};
use tokio::time::Instant;

use super::body;
use super::code::Code;
use super::cursor;
use super::desk::Desk;
use super::path::Id;
use super::problem::{Problem, shown};
use super::query::{Query, wrong};
use super::view;
use crate::listener::Peer;
use crate::store::{JOBS_MAX, JobFilter, JobRecord};

pub(super) async fn list(State(desk): State<Arc<Desk>>, uri: Uri) -> Result<Response, Problem> {
    let mut filter = filter(&desk, Query::of(&uri)?).await?;
    let limit = filter.limit;
    // One more than is shown tells whether there is a next page.
    filter.limit += 1;
    let mut rows = desk.read(move |archive| archive.jobs(&filter)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| next_page(&desk, &uri, row.job));
    let show = desk.show();
    let jobs: Vec<view::Job> = rows.into_iter().map(|row| show.job(row)).collect();
    let mut response = Json(jobs).into_response();
    if let Some(link) = next.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

pub(super) async fn one(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Json<view::FullJob>, Problem> {
    let mut query = Query::of(&uri)?;
    let patience = query.duration("wait", WAIT_MAX)?;
    query.finish()?;
    let job = JobId(id);
    let mut record = find(&desk, job).await?;
    if let Some(patience) = patience.filter(|_| !record.row.state.has_ended()) {
        until_ended(&desk, job, patience).await;
        record = find(&desk, job).await?;
    }
    Ok(Json(desk.show().full(record)))
}

pub(super) async fn cancel(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let job = JobId(id);
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    let status = match desk.app.engine.cancel(job, author(&parts)).await? {
        Answer::Cancelling(state) if state.has_ended() => StatusCode::OK,
        Answer::Cancelling(_) => StatusCode::ACCEPTED,
        Answer::Rejected(Rejection::NotLive) => return cancelled_before(&desk, job).await,
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(unexpected(&answer)),
    };
    let record = find(&desk, job).await?;
    let full = desk.show().full(record);
    Ok((status, Json(full)).into_response())
}

pub(super) async fn release(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<view::FullJob>, Problem> {
    let job = JobId(id);
    let (parts, body) = request.into_parts();
    body::none(body).await?;
    match desk.app.engine.release(job, author(&parts)).await? {
        Answer::Done => {}
        Answer::Rejected(Rejection::NotLive) => return Err(finished(&find(&desk, job).await?)),
        Answer::Rejected(rejection) => return Err(rejection.into()),
        answer => return Err(unexpected(&answer)),
    }
    let record = find(&desk, job).await?;
    Ok(Json(desk.show().full(record)))
}

/// Who asks, for the record.
fn author(parts: &Parts) -> String {
    match parts.extensions.get::<Peer>() {
        Some(peer) => format!("http {}", peer.address.ip()),
        None => "http".to_owned(),
    }
}

/// Waits until a job has ended, but not longer than this, nor for a server that leaves.
pub(super) async fn until_ended(desk: &Desk, job: JobId, patience: Duration) {
    tokio::select! {
        // Whoever waits looks at the job afterwards, whatever came of it.
        _ = tokio::time::timeout(patience, insist(|| desk.app.engine.ended(job))) => {}
        () = desk.app.leaving.cancelled() => {}
    }
}

/// Asks until there is an answer: whoever waits has the time.
async fn insist<T, E, F: Future<Output = Result<T, E>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

/// The job behind a wait. A store that cannot be read is asked again some times.
pub(super) async fn find_at_last(desk: &Desk, job: JobId) -> Result<JobRecord, Problem> {
    let by = Instant::now() + FIND_WITHIN;
    loop {
        match find(desk, job).await {
            Err(problem) if problem.code().status().is_server_error() && Instant::now() < by => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            found => return found,
        }
    }
}

/// A job with its whole story.
///
/// # Errors
/// `job_not_found`, or `pruned` if there was one.
pub(super) async fn find(desk: &Desk, job: JobId) -> Result<JobRecord, Problem> {
    if let Some(record) = desk.read(move |archive| archive.job(job)).await? {
        return Ok(record);
    }
    match desk.read(move |archive| archive.was_removed(job)).await? {
        true => Err(Problem::new(Code::Pruned, format!("job {job} has ended, and has been removed since"))
            .hint("ended jobs are kept for a limited time, and in a limited number (--keep-jobs, --keep-jobs-max)")),
        false => Err(Problem::new(Code::JobNotFound, format!("there is no job {job}"))
            .hint("GET /api/jobs lists the jobs")),
    }
}

/// The engine said something that makes no sense here.
pub(super) fn unexpected(answer: &Answer) -> Problem {
    Problem::internal(Unexpected(format!("{answer:?}")))
}

#[derive(Debug, thiserror::Error)]
#[error("the engine answered {0}")]
struct Unexpected(String);

/// Cancelling twice is no mistake; cancelling what ended by itself comes too late.
async fn cancelled_before(desk: &Desk, job: JobId) -> Result<Response, Problem> {
    let record = find(desk, job).await?;
    if record.row.state == JobState::Cancelled {
        let full = desk.show().full(record);
        return Ok(Json(full).into_response());
    }
    Err(finished(&record))
}

/// What is wanted of a job comes too late.
fn finished(record: &JobRecord) -> Problem {
    let (job, state) = (record.row.job, record.row.state.name());
    Problem::new(Code::AlreadyFinished, format!("job {job} has ended as {state}"))
        .state(state)
        .hint("to run it once more, retry it")
}

async fn filter(desk: &Desk, mut query: Query) -> Result<JobFilter, Problem> {
    let worker = query.text("worker")?;
    let filter = JobFilter {
        states: query.text("state")?.as_deref().map_or(Ok(Vec::new()), states)?,
        name: query.text("name")?,
        worker: None,
        label: query.text("label")?.as_deref().map(label).transpose()?,
        batch: query.number("batch")?.map(JobId),
        since: query.instant("since")?,
        until: query.instant("until")?,
        before: query.text("cursor")?.as_deref().map(cursor::read).transpose()?,
        limit: query.text("limit")?.as_deref().map_or(Ok(LIMIT), limit)?,
    };
    query.finish()?;
    match worker {
        Some(worker) => Ok(JobFilter { worker: Some(worker_named(desk, worker).await?), ..filter }),
        None => Ok(filter),
    }
}

fn states(text: &str) -> Result<Vec<JobState>, Problem> {
    let state = |name: &str| {
        JobState::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| {
            let all = JobState::ALL.map(JobState::name).join(", ");
            Problem::new(Code::InvalidState, format!("there is no state \"{}\"", shown(name)))
                .field("?state")
                .hint(format!("the states are {all}"))
        })
    };
    text.split(',').map(state).collect()
}

/// A worker by its number or its name: who bears it now, or else who did.
async fn worker_named(desk: &Desk, text: String) -> Result<WorkerId, Problem> {
    if let Ok(id) = text.parse() {
        return Ok(WorkerId(id));
    }
    let snapshot = desk.app.engine.snapshot();
    if let Some(named) = snapshot.workers.iter().find(|worker| *worker.name == *text) {
        return Ok(named.id);
    }
    let unknown = format!("no worker was ever called \"{}\"", shown(&text));
    let named = desk.read(move |archive| archive.worker_named(&text)).await?;
    named
        .ok_or_else(|| wrong("worker", &unknown).hint("give a name from GET /api/workers?all=1, or a number"))
}

fn label(text: &str) -> Result<(String, String), Problem> {
    let (name, value) = text.split_once('=').ok_or_else(|| wrong("label", "it is written name=value"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn limit(text: &str) -> Result<usize, Problem> {
    text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
        Problem::new(Code::InvalidLimit, format!("\"{}\" is not within 1 to {LIMIT_MAX}", shown(text)))
            .field("?limit")
    })
}

/// The same question, from the last job shown on.
fn next_page(desk: &Desk, uri: &Uri, last: JobId) -> String {
    let mut query: Vec<String> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="))
        .map(|pair| pair.replace('<', "%3C").replace('>', "%3E").replace('"', "%22"))
        .collect();
    query.push(format!("cursor={}", cursor::write(last)));
    format!("<{}/api/jobs?{}>; rel=\"next\"", desk.app.base_path, query.join("&"))
}

/// How long after a question that could not be answered it is asked again, and for how long in all by those who have waited already.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const FIND_WITHIN: Duration = Duration::from_secs(5);

/// Longer than that, proxies cut the connection.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(600);

/// A page that a person reads, and the largest that a program gets at once.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = JOBS_MAX - 1;

/// Where a job is to be found.
pub(super) fn location(desk: &Desk, job: JobId) -> HeaderMap {
    let location = HeaderValue::try_from(format!("{}/api/jobs/{job}", desk.app.base_path));
    location.map(|location| HeaderMap::from_iter([(header::LOCATION, location)])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn who_is_too_busy_to_tell_is_asked_again_each_second() {
        let (begun, asked) = (Instant::now(), Cell::new(0));
        let answer = insist(|| {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() < 4 { Err(()) } else { Ok("ended") })
        });
        assert_eq!((answer.await, begun.elapsed().as_secs()), ("ended", 3));
    }
}
