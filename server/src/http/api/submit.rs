//! `POST /api/jobs/{name}` and `POST /api/jobs/{id}/retry`: one new job.
//!
//! This is the hot path: the answer is written from the engine's reply, without a read of the store.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use protocol::JobId;
use protocol::container::Overrides;
use scheduler::definition::Definition;
use scheduler::input::{JobDetails, KeyHolder, NewJob};
use scheduler::job::State as JobState;
use scheduler::step::{Accepted, Answer, PendingReason, Rejection};

use crate::auth::actor::Actor;
use crate::config::jobs_file;
use crate::engine::Busy;
use crate::http::api::admission;
use crate::http::api::batches::{array, position};
use crate::http::api::jobs::{find, find_with_retries, location, wait_until_ended};
use crate::http::api::logs;
use crate::http::api::members;
use crate::http::api::schedule_choice::ScheduleChoice;
use crate::http::middleware::body_budget::BodyReservation;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::{Problem, pending_text};
use crate::http::present::presenter::{self, job_in_state, pending};
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::definition;
use crate::http::request::idempotency_key::{explain_pruned, find_accepted, parse_key, submit_with_key};
use crate::http::request::job_request::{self, JobRequest};
use crate::http::request::path::{Id, Name};
use crate::http::request::query::Query;
use crate::http::request::submission;
use crate::http::request::submit_params::{MembersChoice, RevisionChoice, SubmitParams};
use crate::http::request::trace_context::TraceContext;
use crate::http::state::AppState;
use crate::params::{self, Checker};
use crate::store::JobRow;

/// `POST /api/jobs/{name}`
pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    request: Request,
) -> Result<Response, Problem> {
    state.check_accepting()?;
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let schedule = ScheduleChoice::read(&mut query)?;
    let params = SubmitParams::read(query)?;
    let (text, held) = read_body(&state, &parts, body).await?;
    let actor = Actor::current();
    actor.check_scope(&name)?;
    let mut request = job_request::read_submission(&text)?;
    let trace = TraceContext::read(&parts.headers);
    let key = parse_key(&parts, &schedule.fingerprint_text(&name), &text)?;
    if let Some(array) = request.array.take() {
        params.check_batch()?;
        schedule.check_batch()?;
        return array::submit(&state, &name, request, *array, &trace, params.require_worker, key).await;
    }
    let definitions = state.services.catalogue.current();
    match admission::find_to_run(&definitions, &name, request.job.timeout, actor.role) {
        Ok(entry) => {
            let definition = &entry.definition;
            let checker = Checker::new(&definition.submission.params);
            let mut job = schedule.complete(request, definition, &checker)?;
            trace.add_to(&mut job);
            drop(text);
            submit_and_answer(&state, definition, job, key, params, held).await
        }
        Err(refusal) => replay(&state, find_accepted(&state, key, refusal).await?, params).await,
    }
}

/// `POST /api/jobs/{id}/retry`
pub(crate) async fn retry(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    state.check_accepting()?;
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let revision = RevisionChoice::read(&mut query)?;
    let members = MembersChoice::read(&mut query)?;
    let params = SubmitParams::read(query)?;
    let (text, held) = read_body(&state, &parts, body).await?;
    let changes = job_request::read_one(&text)?;
    let key = parse_key(&parts, &members.fingerprint_text(&revision.fingerprint_text(id)), &text)?;
    let repeated = repeat_of(&state, JobId(id), revision, members, changes).await;
    drop(text);
    match repeated {
        Ok((definition, mut job)) => {
            TraceContext::read(&parts.headers).replace_in(&mut job);
            submit_and_answer(&state, &definition, job, key, params, held).await
        }
        Err(refusal) => replay(&state, find_accepted(&state, key, refusal).await?, params).await,
    }
}

/// Reads the body of a single submission. Its memory is reserved until the returned reservation is dropped.
pub(crate) async fn read_body(
    state: &AppState,
    parts: &Parts,
    body: Body,
) -> Result<(Bytes, BodyReservation), Problem> {
    let mut held = state.body_budget.reservation_at_once();
    if body.is_end_stream() {
        return Ok((Bytes::new(), held));
    }
    let pieces = body::pieces(body, BODY_BYTES_MAX, body::TIMEOUT, &mut held).await?;
    let text = Bytes::from(pieces.concat());
    if !text.is_empty() {
        body::form(&parts.headers, false)?;
    }
    Ok((text, held))
}

/// The job that repeats an ended one, with `changes` laid over its overrides.
pub(crate) async fn repeat_of(
    state: &Arc<AppState>,
    id: JobId,
    revision: RevisionChoice,
    members: MembersChoice,
    changes: JobRequest<'_>,
) -> Result<(Arc<Definition>, NewJob), Problem> {
    let record = find(state, id).await?;
    let actor = Actor::current();
    actor.check_scope(&record.row.definition)?;
    let job_state = record.row.state;
    if !job_state.has_ended() {
        return Err(Problem::new(Code::NotFinished, format!("job {id} is {}", job_state.name()))
            .state(job_state.name())
            .hint("wait until it has ended, or cancel it first; for another job like it, submit one"));
    }
    let definitions = state.services.catalogue.current();
    // A disabled definition disables its older revisions, too.
    if definitions.find(&record.row.definition).is_some_and(|entry| !entry.definition.enabled) {
        return Err(Rejection::Disabled.into());
    }
    let definition = match revision {
        RevisionChoice::Original => revision_of(state, &record.row).await?,
        RevisionChoice::Current => match definition::find(&definitions, &record.row.definition) {
            Ok(entry) => Arc::clone(&entry.definition),
            Err(problem) => {
                return Err(problem.hint("?revision=original runs it as it was when the job was made"));
            }
        },
    };
    let position = position(state, &record.row).await?;
    let members = members::repeated(state, &record.row, members).await?;
    let mut details =
        JobDetails { overrides: record.overrides, labels: record.row.labels, ..JobDetails::default() };
    merge_pairs(&mut details.overrides.environment, position);
    let checker = Checker::new(&definition.submission.params);
    let kept = record.params.into_iter().map(|param| (param.name, params::to_json(&param.value)));
    let (changes, resolved) =
        submission::resolve_over_earlier_params(kept.collect(), changes, &definition, &checker)?;
    details.params = resolved;
    if let Some(changes) = changes.details {
        merge_overrides(&mut details.overrides, changes.overrides);
        merge_pairs(&mut details.labels, changes.labels);
        job_request::check_totals(&details)?;
    }
    job_request::check_size(&details.sent())?;
    let has_details = !details.is_empty();
    let job = NewJob {
        priority: changes.priority.or(Some(record.row.priority)),
        timeout: changes.timeout.or(record.row.timeout),
        retry_of: Some(id),
        unique_key: changes.unique_key,
        after: changes.after,
        members,
        details: has_details.then(|| Box::new(details)),
        ..NewJob::default()
    };
    admission::check_policy(&definitions, &definition, job.timeout, actor.role)?;
    Ok((definition, job))
}

/// Merges later overrides into earlier ones: variables by name, arguments and input as a whole.
pub(crate) fn merge_overrides(overrides: &mut Overrides, changes: Overrides) {
    merge_pairs(&mut overrides.environment, changes.environment);
    if !changes.args.is_empty() {
        overrides.args = changes.args;
    }
    if changes.input.is_some() {
        overrides.input = changes.input;
    }
}

/// Replaces the values of names that are there, and adds the others.
fn merge_pairs(pairs: &mut Vec<(String, String)>, changes: Vec<(String, String)>) {
    for (name, value) in changes {
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => pairs.push((name, value)),
        }
    }
}

/// Finds the revision of a job, and registers it with the engine if jobs.yaml has changed since.
async fn revision_of(state: &Arc<AppState>, row: &JobRow) -> Result<Arc<Definition>, Problem> {
    let revision = row.revision;
    if let Some(entry) = state.services.catalogue.current().find_revision(revision) {
        return Ok(entry.definition.clone());
    }
    let stored = state.read(move |archive| archive.definition(revision)).await?;
    let definition = stored.and_then(|stored| jobs_file::parse_stored(&stored).ok()).map(Arc::new);
    let definition = definition.ok_or_else(|| {
        Problem::new(
            Code::RevisionGone,
            format!("\"{}\" as it was for job {} is gone", row.definition, row.job),
        )
        .hint("make a new job of the definition as it is now")
    })?;
    state.services.engine.learn(definition.clone())?;
    Ok(definition)
}

/// Submits one job to the engine and answers.
async fn submit_and_answer(
    state: &Arc<AppState>,
    definition: &Definition,
    job: NewJob,
    key: Option<(Arc<str>, u128)>,
    params: SubmitParams,
    held: BodyReservation,
) -> Result<Response, Problem> {
    let job = NewJob { revision: definition.revision, ..job };
    let run_at = job.run_at;
    let draft = shapes::Job {
        priority: job.priority.unwrap_or(definition.priority),
        timeout: job.timeout.map(presenter::timeout),
        retry_of: job.retry_of.map(|of| of.0),
        labels: job.details.iter().flat_map(|details| details.labels.iter().cloned()).collect(),
        ..shapes::Job::default()
    };
    let answered = submit_with_key(state, vec![job], None, params.require_worker, key).await?;
    // The client may wait for the end of the job for minutes.
    drop(held);
    match answered {
        Answer::Accepted(accepted) => {
            let shown = shapes::Job {
                pending_reason: accepted.pending.map(pending),
                warning: accepted.pending.and_then(warning),
                due_at: Time(run_at.map_or(accepted.created_at, |start| start.resolve(accepted.created_at))),
                ..complete(draft, definition, &accepted)
            };
            answer(state, shown, params, StatusCode::CREATED).await
        }
        Answer::Replayed(holder) => replay(state, holder, params).await,
        Answer::Duplicate(job) => duplicate(state, job, params).await,
        // The archive is asked for ids of ended jobs only; here the definition has just been replaced.
        Answer::Rejected(Rejection::UnknownDefinition) => {
            Err(Problem::from(Busy).hint("jobs.yaml has just been read again; try again"))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// Answers a repeated request with the present state of its job.
async fn replay(state: &Arc<AppState>, holder: KeyHolder, params: SubmitParams) -> Result<Response, Problem> {
    let record = find(state, holder.job).await.map_err(|problem| explain_pruned(problem, &holder))?;
    let shown = state.presenter().job(record.row);
    let mut response = answer(state, shown, params, StatusCode::OK).await?;
    response.headers_mut().insert(REPLAYED, YES);
    Ok(response)
}

/// Answers with the present state of the job that has the unique key.
async fn duplicate(state: &Arc<AppState>, job: JobId, params: SubmitParams) -> Result<Response, Problem> {
    let record = find(state, job).await?;
    let shown = shapes::Job { duplicate: true, ..state.presenter().job(record.row) };
    let mut response = answer(state, shown, params, StatusCode::OK).await?;
    response.headers_mut().insert(DUPLICATE, YES);
    Ok(response)
}

fn complete(draft: shapes::Job, definition: &Definition, accepted: &Accepted) -> shapes::Job {
    let created_at = Time(accepted.created_at);
    let name = definition.name.clone();
    let revision = definition.revision.to_string();
    let shapes::Job { priority, timeout, retry_of, labels, .. } = draft;
    // A job that was assigned at once is in its first attempt.
    let attempt_count = u32::from(accepted.state == JobState::Assigned);
    shapes::Job {
        priority,
        timeout,
        retry_of,
        labels,
        attempt_count,
        ..job_in_state(accepted.first, name, revision, accepted.state, created_at)
    }
}

/// Answers at once, after the job's end, or with the job's output, as the parameters ask.
async fn answer(
    state: &Arc<AppState>,
    shown: shapes::Job,
    params: SubmitParams,
    status: StatusCode,
) -> Result<Response, Problem> {
    let job = JobId(shown.id);
    let headers = location(state, job);
    if params.follow {
        return Ok((status, headers, logs::follow(state, job)).into_response());
    }
    let Some(timeout) = params.wait else { return Ok(json(status, headers, &shown)) };
    wait_until_ended(state, job, timeout).await;
    match find_with_retries(state, job).await {
        Ok(record) => {
            let mut full = state.full_job(record);
            full.job.warning = shown.warning;
            full.job.duplicate = shown.duplicate;
            Ok(json(status, headers, &full))
        }
        // The job was accepted, and the status must say so.
        Err(_) => {
            let warning = shapes::Reason {
                code: "not_looked_up".into(),
                text: "how far the job is cannot be read; this is how it was accepted".into(),
            };
            let shown = shapes::Job { pending_reason: None, warning: Some(warning), ..shown };
            Ok(json(status, headers, &shown))
        }
    }
}

/// A warning beside an accepted job: it is paused, or no worker can run it at present.
pub(crate) fn warning(reason: PendingReason) -> Option<shapes::Reason> {
    if reason == PendingReason::Paused {
        return Some(presenter::pending(reason));
    }
    let matches_none = matches!(
        reason,
        PendingReason::NoWorker
            | PendingReason::NoRuntime
            | PendingReason::NoMatch
            | PendingReason::TooLarge
            | PendingReason::Cordoned
            | PendingReason::RuntimeUnavailable
    );
    matches_none
        .then(|| shapes::Reason { code: "no_worker_matches".into(), text: pending_text(reason).into() })
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, headers: HeaderMap, value: &impl serde::Serialize) -> Response {
    let mut text = Vec::with_capacity(JOB_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => (status, headers, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const YES: HeaderValue = HeaderValue::from_static("true");
/// Header that marks the answer to a repeated request.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// Header that marks the answer to a submission that made no job, because another one has its unique key.
pub(crate) const DUPLICATE: HeaderName = HeaderName::from_static("unique-duplicate");

/// Initial size of the buffer; most jobs fit.
const JOB_BYTES: usize = 512;

const BODY_BYTES_MAX: usize = 1 << 20;
