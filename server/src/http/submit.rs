//! Requests for one job: a new one, or an ended one again.
//!
//! A single request is the hot path: its answer is written from what the engine says, without reading the store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use protocol::JobId;
use scheduler::definition::Definition;
use scheduler::input::{Details, KeyHolder, NewJob};
use scheduler::job::State as JobState;
use scheduler::step::{Accepted, Answer, PendingReason, Rejection};

use super::body;
use super::code::Code;
use super::definitions;
use super::desk::Desk;
use super::jobs::{WAIT_MAX, find, find_at_last, location, unexpected, until_ended};
use super::key::{accepted_before, ask, key_of, removed_since};
use super::output;
use super::path::{Id, Name};
use super::problem::{Problem, pending_text};
use super::query::{Query, wrong};
use super::show::{self, job_in_state, pending};
use super::view::{self, Time};
use super::wanted;
use crate::config::jobs_file;
use crate::engine::Busy;
use crate::store::JobRow;

/// `POST /api/jobs/{name}`
pub(super) async fn one(
    State(desk): State<Arc<Desk>>,
    Name(name): Name,
    request: Request,
) -> Result<Response, Problem> {
    desk.may_accept()?;
    let (parts, body) = request.into_parts();
    let manner = Manner::of(&parts.uri)?;
    let text = read_small(&parts, body).await?;
    let job = wanted::read_one(&text)?;
    let key = key_of(&parts, &name, &text)?;
    let definitions = desk.app.catalogue.current();
    match definitions::find(&definitions, &name) {
        Ok(entry) => place(&desk, &entry.definition, job, key, manner).await,
        Err(refusal) => replay(&desk, accepted_before(&desk, key, refusal).await?, manner).await,
    }
}

/// `POST /api/jobs/{id}/retry`
pub(super) async fn again(
    State(desk): State<Arc<Desk>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    desk.may_accept()?;
    let (parts, body) = request.into_parts();
    let manner = Manner::of(&parts.uri)?;
    body::none(body).await?;
    let key = key_of(&parts, &format!("retry {id}"), &Bytes::new())?;
    match as_it_was(&desk, JobId(id)).await {
        Ok((definition, job)) => place(&desk, &definition, job, key, manner).await,
        Err(refusal) => replay(&desk, accepted_before(&desk, key, refusal).await?, manner).await,
    }
}

/// How a request for jobs wants to be treated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    pub(super) wait: Option<Duration>,
    pub(super) follow: bool,
    pub(super) require_worker: bool,
}

impl Manner {
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_none() {
            return Ok(Self::default());
        }
        let mut query = Query::of(uri)?;
        let manner = Self {
            wait: query.duration("wait", WAIT_MAX)?,
            follow: query.switch("follow")?,
            require_worker: query.switch("require_worker")?,
        };
        query.finish()?;
        if manner.wait.is_some() && manner.follow {
            return Err(wrong("wait", "it does not go together with follow, which waits for the end"));
        }
        Ok(manner)
    }
}

async fn read_small(parts: &Parts, body: Body) -> Result<Bytes, Problem> {
    let text = body::read(body, ONE_BYTES_MAX, body::PATIENCE).await?;
    if !text.is_empty() {
        body::form(&parts.headers, false)?;
    }
    Ok(text)
}

/// An ended job once more, of the definition that it was made with.
async fn as_it_was(desk: &Arc<Desk>, id: JobId) -> Result<(Arc<Definition>, NewJob), Problem> {
    let record = find(desk, id).await?;
    let state = record.row.state;
    if !state.has_ended() {
        return Err(Problem::new(Code::NotFinished, format!("job {id} is {}", state.name()))
            .state(state.name())
            .hint("wait until it has ended, or cancel it first; for another job like it, submit one"));
    }
    // Whoever disables a definition means its older revisions, too.
    let namesake = desk.app.catalogue.current().find(&record.row.definition).cloned();
    if namesake.is_some_and(|entry| !entry.definition.enabled) {
        return Err(Rejection::Disabled.into());
    }
    let definition = learn(desk, &record.row).await?;
    let details = Details { body: record.body, labels: record.row.labels };
    let has_details = !details.body.is_empty() || !details.labels.is_empty();
    let job = NewJob {
        priority: Some(record.row.priority),
        timeout: record.row.timeout,
        retry_of: Some(id),
        details: has_details.then(|| Box::new(details)),
        ..NewJob::default()
    };
    Ok((definition, job))
}

/// The definition that a job was made with, made known to the engine again if jobs.yaml has changed since.
async fn learn(desk: &Arc<Desk>, row: &JobRow) -> Result<Arc<Definition>, Problem> {
    let revision = row.revision;
    if let Some(entry) = desk.app.catalogue.current().find_revision(revision) {
        return Ok(entry.definition.clone());
    }
    let stored = desk.read(move |archive| archive.definition(revision)).await?;
    let definition = stored.and_then(|stored| jobs_file::parse_stored(&stored).ok()).map(Arc::new);
    let definition = definition.ok_or_else(|| {
        Problem::new(
            Code::RevisionGone,
            format!("\"{}\" as it was for job {} is gone", row.definition, row.job),
        )
        .hint("make a new job of the definition as it is now")
    })?;
    desk.app.engine.learn(definition.clone())?;
    Ok(definition)
}

/// Asks the engine for one job, and answers.
async fn place(
    desk: &Arc<Desk>,
    definition: &Definition,
    mut job: NewJob,
    key: Option<(Arc<str>, u128)>,
    manner: Manner,
) -> Result<Response, Problem> {
    job.revision = definition.revision;
    let draft = view::Job {
        priority: job.priority.unwrap_or(definition.priority),
        timeout: job.timeout.map(show::timeout),
        retry_of: job.retry_of.map(|of| of.0),
        labels: job.details.iter().flat_map(|details| details.labels.iter().cloned()).collect(),
        ..view::Job::default()
    };
    match ask(desk, vec![job], false, manner.require_worker, key).await? {
        Answer::Accepted(accepted) => {
            let shown = view::Job {
                pending_reason: accepted.pending.map(pending),
                warning: accepted.pending.and_then(warning),
                ..in_full(draft, definition, &accepted)
            };
            answer(desk, shown, manner, StatusCode::CREATED).await
        }
        Answer::Replayed(holder) => replay(desk, holder, manner).await,
        // The archive is asked for the ids of ended jobs only; here it was about a definition of a moment ago.
        Answer::Rejected(Rejection::UnknownDefinition) => {
            Err(Problem::from(Busy).hint("jobs.yaml has just been read again; try again"))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected(&answer)),
    }
}

/// Answers a request that was accepted before, with its job as it is now.
async fn replay(desk: &Arc<Desk>, holder: KeyHolder, manner: Manner) -> Result<Response, Problem> {
    let record = find(desk, holder.job).await.map_err(|problem| removed_since(problem, &holder))?;
    let shown = desk.show().job(record.row);
    let mut response = answer(desk, shown, manner, StatusCode::OK).await?;
    response.headers_mut().insert(REPLAYED, YES);
    Ok(response)
}

fn in_full(draft: view::Job, definition: &Definition, accepted: &Accepted) -> view::Job {
    let created_at = Time(accepted.created_at);
    let name = definition.name.clone();
    let revision = definition.revision.to_string();
    let view::Job { priority, timeout, retry_of, labels, .. } = draft;
    // Handed over at once: that is its first attempt.
    let attempt_count = u32::from(accepted.state == JobState::Assigned);
    view::Job {
        priority,
        timeout,
        retry_of,
        labels,
        attempt_count,
        ..job_in_state(accepted.first, name, revision, accepted.state, created_at)
    }
}

/// Answers as the client wants it: at once, after its end, or with its output.
async fn answer(
    desk: &Arc<Desk>,
    shown: view::Job,
    manner: Manner,
    status: StatusCode,
) -> Result<Response, Problem> {
    let job = JobId(shown.id);
    let headers = location(desk, job);
    if manner.follow {
        return Ok((status, headers, output::follow(desk, job)).into_response());
    }
    let Some(patience) = manner.wait else { return Ok(json(status, headers, &shown)) };
    until_ended(desk, job, patience).await;
    match find_at_last(desk, job).await {
        Ok(record) => {
            let mut full = desk.show().full(record);
            full.job.warning = shown.warning;
            Ok(json(status, headers, &full))
        }
        // It was accepted, and that is what the status has to say.
        Err(_) => {
            let warning = view::Reason {
                code: "not_looked_up".into(),
                text: "how far the job is cannot be read; this is how it was accepted".into(),
            };
            let shown = view::Job { pending_reason: None, warning: Some(warning), ..shown };
            Ok(json(status, headers, &shown))
        }
    }
}

/// Something to know although jobs were accepted.
pub(super) fn warning(reason: PendingReason) -> Option<view::Reason> {
    let matches_none =
        matches!(reason, PendingReason::NoWorker | PendingReason::NoRuntime | PendingReason::Cordoned);
    matches_none.then(|| view::Reason { code: "no_worker_matches".into(), text: pending_text(reason).into() })
}

/// An answer.
pub(super) fn json(status: StatusCode, headers: HeaderMap, value: &impl serde::Serialize) -> Response {
    let mut text = Vec::with_capacity(JOB_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => (status, headers, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const YES: HeaderValue = HeaderValue::from_static("true");
/// Says that the request was accepted before.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// Most jobs fit: the buffer need not grow.
const JOB_BYTES: usize = 512;

const ONE_BYTES_MAX: usize = 1 << 20;
