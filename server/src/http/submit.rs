//! Requests for jobs: one, many, or an ended one again.
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
use protocol::{JobId, Revision};
use scheduler::definition::Definition;
use scheduler::input::{Details, Key, KeyHolder, NewJob};
use scheduler::job::State as JobState;
use scheduler::step::{Accepted, Answer, PendingReason, Rejection};
use sha2::{Digest, Sha256};

use super::body::{self, Form};
use super::code::Code;
use super::definitions;
use super::desk::Desk;
use super::jobs::{WAIT_MAX, find, location, unexpected, until_ended};
use super::output;
use super::path::{Id, Name};
use super::problem::{Problem, pending_text};
use super::query::Query;
use super::show::{self, Show, job_in_state, pending};
use super::view::{self, Time};
use super::wanted::{self, Wanted};
use crate::catalogue::Definitions;
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
    let entry = definitions::find(&definitions, &name)?;
    place(&desk, &entry.definition, job, key, manner).await
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
    body::read(body, 0, body::PATIENCE).await?;
    let record = find(&desk, JobId(id)).await?;
    let state = record.row.state;
    if !state.has_ended() {
        return Err(
            Problem::new(Code::NotFinished, format!("job {id} is {}", state.name())).state(state.name())
        );
    }
    let key = key_of(&parts, &format!("retry {id}"), &Bytes::new())?;
    let definition = learn(&desk, &record.row).await?;
    let details = Details { body: record.body, labels: record.row.labels };
    let has_details = !details.body.is_empty() || !details.labels.is_empty();
    let job = NewJob {
        priority: Some(record.row.priority),
        timeout: record.row.timeout,
        retry_of: Some(JobId(id)),
        details: has_details.then(|| Box::new(details)),
        ..NewJob::default()
    };
    place(&desk, &definition, job, key, manner).await
}

/// `POST /api/jobs`
pub(super) async fn many(State(desk): State<Arc<Desk>>, request: Request) -> Result<Response, Problem> {
    desk.may_accept()?;
    let (parts, body) = request.into_parts();
    let manner = Manner::of(&parts.uri)?;
    if manner.wait.is_some() || manner.follow {
        return Err(Problem::new(Code::InvalidQuery, "nobody can wait for a whole batch").field("?wait"));
    }
    let form = body::form(&parts.headers, true)?;
    let length =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let _room = desk.room_for(mib(length.unwrap_or(MANY_BYTES_MAX))).await?;
    let text = body::read(body, MANY_BYTES_MAX, MANY_PATIENCE).await?;
    let key = key_of(&parts, "", &text)?;
    let definitions = desk.app.catalogue.current();
    let jobs = if text.len() <= INLINE_BYTES_MAX {
        read_many(&text, form, &definitions)?
    } else {
        // A large body takes milliseconds to read: not on a thread that others wait for.
        tokio::task::spawn_blocking(move || read_many(&text, form, &definitions))
            .await
            .unwrap_or_else(|error| Err(Problem::internal(error)))?
    };
    match ask(&desk, jobs, true, manner.require_worker, key).await? {
        Answer::Accepted(accepted) => Ok(created_many(&accepted)),
        Answer::Replayed(holder) => Ok(replayed_many(holder)),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected(&answer)),
    }
}

/// How a request for jobs wants to be treated.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    wait: Option<Duration>,
    follow: bool,
    require_worker: bool,
}

impl Manner {
    fn of(uri: &Uri) -> Result<Self, Problem> {
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
        Answer::Replayed(holder) => {
            let record = find(desk, holder.job).await?;
            let shown = Show::new(desk.app.engine.snapshot()).job(record.row);
            let mut response = answer(desk, shown, manner, StatusCode::OK).await?;
            response.headers_mut().insert(REPLAYED, YES);
            Ok(response)
        }
        // The archive is asked for the ids of ended jobs only; here it was about a definition of a moment ago.
        Answer::Rejected(Rejection::UnknownDefinition) => {
            Err(Problem::from(Busy).hint("jobs.yaml has just been read again; try again"))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected(&answer)),
    }
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
    match find(desk, job).await {
        Ok(record) => {
            let mut full = Show::new(desk.app.engine.snapshot()).full(record);
            full.job.warning = shown.warning;
            Ok(json(status, headers, &full))
        }
        Err(_) => Ok(json(status, headers, &shown)),
    }
}

/// Puts jobs to the engine, with what the archive knows of the key.
async fn ask(
    desk: &Desk,
    jobs: Vec<NewJob>,
    batch: bool,
    require_worker: bool,
    key: Option<(Arc<str>, u128)>,
) -> Result<Answer, Problem> {
    let Some((key, digest)) = key else {
        return Ok(desk.app.engine.submit(jobs, batch, require_worker, None).await?);
    };
    for _ in 0..KEY_READINGS_MAX {
        let asked = Arc::clone(&key);
        let (found, read_at) = desk.read(move |archive| archive.key(&asked)).await?;
        let key = Key { key: Arc::clone(&key), digest, found, read_at };
        match desk.app.engine.submit(jobs.clone(), batch, require_worker, Some(key)).await? {
            Answer::Rejected(Rejection::KeyReadingTooOld) => {}
            answer => return Ok(answer),
        }
    }
    Err(Busy.into())
}

/// The request's idempotency key, and the hash of what it asks for.
fn key_of(parts: &Parts, target: &str, body: &[u8]) -> Result<Option<(Arc<str>, u128)>, Problem> {
    let mut given = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = given.next() else { return Ok(None) };
    let bytes = key.as_bytes();
    let fits = (1..=KEY_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    let (true, None, Ok(key)) = (fits, given.next(), key.to_str()) else {
        return Err(Problem::new(
            Code::InvalidIdempotencyKey,
            format!("it is one header of 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )
        .field("Idempotency-Key"));
    };
    let hash = Sha256::new().chain_update(target).chain_update([0]).chain_update(body).finalize();
    let digest = u128::from_be_bytes(std::array::from_fn(|index| hash[index]));
    Ok(Some((format!("http:{key}").into(), digest)))
}

fn read_many(text: &[u8], form: Form, definitions: &Definitions) -> Result<Vec<NewJob>, Problem> {
    let mut jobs = Vec::new();
    let mut last: Option<(String, Revision)> = None;
    let take = |wanted: Wanted<'_>| {
        if jobs.len() == MANY_MAX {
            return Err(Problem::new(Code::TooManyJobs, format!("more than {MANY_MAX} jobs in one request")));
        }
        let Some(name) = wanted.name else {
            return Err(
                Problem::new(Code::MissingField, "an entry needs the name of a definition").field("name")
            );
        };
        // Most batches are of one definition.
        let revision = match &last {
            Some((known, revision)) if *known == name => *revision,
            _ => {
                let entry = definitions::find(definitions, &name).map_err(|problem| problem.field("name"))?;
                if !entry.definition.enabled {
                    return Err(Problem::from(Rejection::Disabled).field("name"));
                }
                last = Some((name.into_owned(), entry.definition.revision));
                entry.definition.revision
            }
        };
        jobs.push(NewJob { revision, ..wanted.job });
        Ok(())
    };
    match form {
        Form::Lines => wanted::read_lines(text, take)?,
        Form::Json => wanted::read_array(text, take)?,
    }
    match jobs.is_empty() {
        true => Err(Problem::new(Code::EmptyBatch, "the body has no entry")),
        false => Ok(jobs),
    }
}

fn created_many(accepted: &Accepted) -> Response {
    let batch = view::Batch {
        created_at: Some(Time(accepted.created_at)),
        warning: accepted.pending.and_then(warning),
        ..batch(accepted.first, accepted.count)
    };
    json(StatusCode::CREATED, HeaderMap::new(), &batch)
}

fn replayed_many(holder: KeyHolder) -> Response {
    let headers = HeaderMap::from_iter([(REPLAYED, YES)]);
    json(StatusCode::OK, headers, &batch(holder.job, holder.count))
}

fn batch(first: JobId, count: u32) -> view::Batch {
    let last = first.0 + u64::from(count.saturating_sub(1));
    view::Batch { batch: first.0, count, first: first.0, last, ..view::Batch::default() }
}

fn warning(reason: PendingReason) -> Option<view::Reason> {
    let matches_none =
        matches!(reason, PendingReason::NoWorker | PendingReason::NoRuntime | PendingReason::Cordoned);
    matches_none.then(|| view::Reason { code: "no_worker_matches".into(), text: pending_text(reason).into() })
}

fn json(status: StatusCode, headers: HeaderMap, value: &impl serde::Serialize) -> Response {
    let mut text = Vec::with_capacity(JOB_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => (status, headers, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

fn mib(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MANY_BYTES_MAX).div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YES: HeaderValue = HeaderValue::from_static("true");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Most jobs fit: the buffer need not grow.
const JOB_BYTES: usize = 512;

const ONE_BYTES_MAX: usize = 1 << 20;
const MANY_BYTES_MAX: usize = 64 << 20;
const MANY_MAX: usize = 100_000;

/// 64 MiB at two megabits a second.
const MANY_PATIENCE: Duration = Duration::from_secs(300);

/// Read where it arrives up to this size: less than half a millisecond.
const INLINE_BYTES_MAX: usize = 64 << 10;

const KEY_BYTES_MAX: usize = 255;

/// A reading is too old only if the brain forgets faster than a read takes.
const KEY_READINGS_MAX: usize = 3;
