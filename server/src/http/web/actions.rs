//! Forms that change something: each calls the handler of the API, and leads back to a page.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::Response;
use http_body_util::BodyExt;
use protocol::JobId;
use scheduler::pauses::PauseTarget;
use serde_json::{Value, json};

use super::page::{Frame, render, see_other};
use crate::excerpt::excerpt;
use crate::http::api::{acknowledge, batches, bulk, jobs, pauses, pipelines, submit, workers};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Batch, BulkResult, Intervention, Job, RetriedBatch, Time};
use crate::http::request::body;
use crate::http::request::idempotency_key::IDEMPOTENCY_KEY;
use crate::http::request::path::{Id, IdAndVerb, Name, NameAndVerb};
use crate::http::request::query::encode;
use crate::http::state::AppState;

/// The fields of a form.
pub(super) type Fields = Vec<(String, String)>;

/// Bytes of a form.
const FORM_BYTES_MAX: usize = 256 << 10;

/// Reads the fields of a form.
///
/// # Errors
/// Those of a body.
async fn form(request: Request) -> Result<Fields, Problem> {
    form_within(request, FORM_BYTES_MAX).await
}

/// Reads the fields of a form of at most this many bytes.
///
/// # Errors
/// Those of a body.
pub(super) async fn form_within(request: Request, bytes_max: usize) -> Result<Fields, Problem> {
    let text = body::read(request.into_body(), bytes_max, body::TIMEOUT).await?;
    Ok(form_urlencoded::parse(&text).into_owned().collect())
}

/// The fields of a form, and its request without them.
pub(super) async fn split(request: Request) -> Result<(Request, Fields), Problem> {
    let (parts, body) = request.into_parts();
    Ok((Request::from_parts(parts, Body::empty()), form(Request::new(body)).await?))
}

/// The value of a field; empty if it is not there.
pub(super) fn field<'f>(fields: &'f Fields, name: &str) -> &'f str {
    fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.as_str())
}

/// The same request with another address and body, for a handler of the API.
pub(super) fn request_for(request: &Request, query: &str, json: Option<&Value>) -> Request {
    let mut made = Request::new(json.map_or_else(Body::empty, |json| Body::from(json.to_string())));
    *made.method_mut() = request.method().clone();
    *made.extensions_mut() = request.extensions().clone();
    *made.uri_mut() = format!("/?{query}").parse().unwrap_or(Uri::from_static("/"));
    if json.is_some() {
        made.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    made
}

/// A new idempotency key for a form: what the same rendering of it makes is made once, also by two clicks or a repeated request.
pub(super) fn new_key() -> String {
    format!("form-{:032x}", rand::random::<u128>())
}

/// The idempotency key of a form; `None` if it was sent without one.
pub(super) fn key_of(fields: &Fields) -> Option<&str> {
    Some(field(fields, KEY)).filter(|key| !key.is_empty())
}

/// Adds the idempotency key of a form to the request for a handler of the API, which checks it.
///
/// # Errors
/// `invalid_idempotency_key` if it cannot be a header.
pub(super) fn with_key(mut request: Request, fields: &Fields) -> Result<Request, Problem> {
    if let Some(key) = key_of(fields) {
        let value = HeaderValue::from_str(key).map_err(|_| {
            Problem::new(ProblemCode::InvalidIdempotencyKey, "it has characters that no header has")
        })?;
        request.headers_mut().insert(IDEMPOTENCY_KEY, value);
    }
    Ok(request)
}

/// The field of a form that has its idempotency key.
const KEY: &str = "idempotency_key";

/// `POST /jobs/{id}/{verb}`: cancel, release, retry or acknowledge; or undo an acknowledgement, retry the pipeline, or the members that did not
/// succeed.
pub(crate) async fn job(
    State(state): State<Arc<AppState>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let asked = with_key(request_for(&shell, "", None), &fields)?;
    match verb.as_str() {
        "acknowledge" => {
            let asked = request_for(&shell, "", reason_body(&fields).as_ref());
            drop(acknowledge::add(State(Arc::clone(&state)), Id(id), asked).await?);
        }
        "unacknowledge" => drop(acknowledge::remove(State(Arc::clone(&state)), Id(id), asked).await?),
        "cancel" => drop(jobs::cancel(State(Arc::clone(&state)), Id(id), asked).await?),
        "release" => drop(jobs::release(State(Arc::clone(&state)), Id(id), asked).await?),
        "retry-pipeline" => {
            let made = pipelines::retry(State(Arc::clone(&state)), Id(id), asked).await?;
            return to_batch(&state, made).await;
        }
        "retry" => {
            let made = submit::retry(State(Arc::clone(&state)), Id(id), asked).await?;
            return to_job(&state, made).await;
        }
        "retry-members" => {
            let asked = with_key(request_for(&shell, "members=failed", None), &fields)?;
            let made = submit::retry(State(Arc::clone(&state)), Id(id), asked).await?;
            return to_job(&state, made).await;
        }
        other => return Err(no_such_verb(other)),
    }
    Ok(see_other(&state.services.base_path, &format!("/jobs/{id}")))
}

/// Leads to the page of a job that was just made.
pub(super) async fn to_job(state: &AppState, made: Response) -> Result<Response, Problem> {
    let job: Job = read_answer(made).await?;
    Ok(see_other(&state.services.base_path, &format!("/jobs/{}", job.id)))
}

/// Leads to the page of a batch that was just made.
async fn to_batch(state: &AppState, made: Response) -> Result<Response, Problem> {
    let batch: Batch = read_answer(made).await?;
    Ok(see_other(&state.services.base_path, &format!("/batches/{}", batch.batch)))
}

/// `POST /batches/{id}/{verb}`: pause or resume; or retry, which leads to the new batch.
pub(crate) async fn batch(
    State(state): State<Arc<AppState>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    match verb.as_str() {
        "retry" => {}
        "pause" | "resume" => {
            if is_still_paused(&state, &fields, &PauseTarget::Batch(JobId(id))) {
                let asked = request_for(&shell, "", intervention_body(&fields, &verb).as_ref());
                batches::operate(State(Arc::clone(&state)), IdAndVerb(id, verb), asked).await?;
            }
            return Ok(see_other(&state.services.base_path, &format!("/batches/{id}")));
        }
        other => return Err(no_such_verb(other)),
    }
    let asked = with_key(request_for(&shell, "", None), &fields)?;
    let answer = batches::operate(State(Arc::clone(&state)), IdAndVerb(id, verb), asked).await?;
    let answer: RetriedBatch = read_answer(answer).await?;
    match (answer.batch.filter(|new| new.count > 0), answer.refusals.first()) {
        (Some(new), _) => Ok(see_other(&state.services.base_path, &format!("/batches/{}", new.batch))),
        (None, Some(refusal)) => {
            let detail = format!("no member can be retried: job {}: {}", refusal.job, refusal.detail);
            Err(Problem::new(ProblemCode::NotFinished, detail))
        }
        (None, None) => {
            let detail = match (answer.cancelled, answer.unended) {
                (0, 0) => format!("no member of batch {id} is left to be retried"),
                (cancelled, 0) => format!(
                    "no member of batch {id} has failed, and {cancelled} were cancelled: 'longshore batch {id} retry --cancelled' repeats those"
                ),
                (_, unended) => format!("no member of batch {id} has failed, and {unended} have not ended"),
            };
            Err(Problem::new(ProblemCode::NotFinished, detail))
        }
    }
}

async fn read_answer<T: serde::de::DeserializeOwned>(response: Response) -> Result<T, Problem> {
    let bytes = response.into_body().collect().await.map_err(Problem::internal)?.to_bytes();
    serde_json::from_slice(&bytes).map_err(Problem::internal)
}

/// The text in a field, without blanks around it; nothing if it is empty.
fn filled<'f>(fields: &'f Fields, name: &str) -> Option<&'f str> {
    Some(field(fields, name).trim()).filter(|text| !text.is_empty())
}

/// The body of an acknowledgement: its reason, if one is given.
fn reason_body(fields: &Fields) -> Option<Value> {
    filled(fields, "reason").map(|reason| json!({ "reason": reason }))
}

/// The body of a pause, a cordon or a drain: its reason, and of the first two the length or the end, as far as they are given.
fn intervention_body(fields: &Fields, verb: &str) -> Option<Value> {
    let given = |name: &str| Some((name.to_owned(), Value::from(filled(fields, name)?)));
    // A form that changes a pause or a cordon has its end as well, which stays unless a length is given.
    let end = given("for").or_else(|| given("until")).filter(|_| verb != "drain");
    let body: serde_json::Map<String, Value> = given("reason").into_iter().chain(end).collect();
    (matches!(verb, "pause" | "cordon" | "drain") && !body.is_empty()).then_some(Value::Object(body))
}

/// True unless the form changes a pause that has ended since its page was shown, or has another end by now: the change would begin a new
/// pause, or take the end back. The page that follows shows the pause that is in force.
fn is_still_paused(state: &AppState, fields: &Fields, target: &PauseTarget) -> bool {
    let snapshot = state.services.engine.snapshot();
    is_as_shown(fields, snapshot.pauses.get(target).map(Intervention::of).as_ref())
}

/// True unless the form was made for another intervention: one with another beginning or end, or for none (`since=none`).
fn is_as_shown(fields: &Fields, now: Option<&Intervention>) -> bool {
    let shown = (field(fields, "since").to_owned(), field(fields, "until").to_owned());
    let text = |at: Time| at.to_string();
    let now = now.map_or_else(
        || (NO_INTERVENTION.to_owned(), String::new()),
        |it| (text(it.since), it.until.map(text).unwrap_or_default()),
    );
    shown.0.is_empty() || now == shown
}

/// The beginning of an intervention in a form for something that had none.
const NO_INTERVENTION: &str = "none";

/// The page of the list of workers that a form stands on.
fn workers_address(fields: &Fields) -> String {
    let all = Some(("all", "1")).filter(|_| !field(fields, "all").is_empty());
    let page = Some(field(fields, "page")).filter(|page| page.parse::<u64>().is_ok());
    match encode(all.into_iter().chain(page.map(|page| ("page", page)))) {
        query if query.is_empty() => "/workers".to_owned(),
        query => format!("/workers?{query}"),
    }
}

/// `POST /definitions/{name}/{verb}`: pause or resume, of one schedule with the field `schedule`.
pub(crate) async fn definition(
    State(state): State<Arc<AppState>>,
    NameAndVerb(name, verb): NameAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let query = match field(&fields, "schedule") {
        "" => String::new(),
        schedule => encode([("schedule", schedule)]),
    };
    let leads_to = match field(&fields, "from") {
        "schedules" => format!("/schedules?{}", encode([("name", name.as_str())])),
        _ => format!("/definitions/{name}"),
    };
    if is_still_paused(&state, &fields, &PauseTarget::Definition(name.as_str().into())) {
        let asked = request_for(&shell, &query, intervention_body(&fields, &verb).as_ref());
        let target = NameAndVerb(name.clone(), verb);
        pauses::pause_definition(State(Arc::clone(&state)), target, asked).await?;
    }
    Ok(see_other(&state.services.base_path, &leads_to))
}

/// `POST /pause` and `/resume`: everything, or with the field `group` the definitions of a group.
pub(crate) async fn server(
    State(state): State<Arc<AppState>>,
    uri: OriginalUri,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let (query, target) = match field(&fields, "group") {
        "" => (String::new(), PauseTarget::Server),
        group => (encode([("group", group)]), PauseTarget::Group(group.into())),
    };
    if is_still_paused(&state, &fields, &target) {
        let verb = uri.path().rsplit('/').next().unwrap_or_default();
        let asked = request_for(&shell, &query, intervention_body(&fields, verb).as_ref());
        pauses::pause_all(State(Arc::clone(&state)), uri, asked).await?;
    }
    Ok(see_other(&state.services.base_path, "/definitions"))
}

/// `POST /schedules/{verb}`: pause or resume all schedules.
pub(crate) async fn all_schedules(
    State(state): State<Arc<AppState>>,
    Name(verb): Name,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let asked = request_for(&shell, "", intervention_body(&fields, &verb).as_ref());
    pauses::pause_schedules(State(Arc::clone(&state)), Name(verb), asked).await?;
    Ok(see_other(&state.services.base_path, "/schedules"))
}

/// `POST /workers/{id}/{verb}`: cordon, uncordon, drain, reset, revoke or forget.
pub(crate) async fn worker(
    State(state): State<Arc<AppState>>,
    IdAndVerb(id, verb): IdAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    if !matches!(verb.as_str(), "cordon" | "uncordon" | "drain" | "reset" | "revoke" | "forget") {
        return Err(no_such_verb(&verb));
    }
    let (shell, fields) = split(request).await?;
    let deadline = filled(&fields, "deadline").filter(|_| verb == "drain");
    let query = encode(deadline.map(|deadline| ("deadline", deadline)));
    let asked = request_for(&shell, &query, intervention_body(&fields, &verb).as_ref());
    let is_on_list = field(&fields, "from") == "list";
    let leads_to = match verb.as_str() {
        _ if is_on_list => workers_address(&fields),
        "forget" => "/workers".to_owned(),
        _ => format!("/workers/{id}"),
    };
    let is_asked_for = !matches!(verb.as_str(), "cordon" | "uncordon") || {
        let worker = workers::one(State(Arc::clone(&state)), Id(id)).await?.0;
        is_as_shown(&fields, worker.cordon.as_ref())
    };
    if is_asked_for {
        workers::operate(State(Arc::clone(&state)), IdAndVerb(id, verb), asked).await?;
    }
    Ok(see_other(&state.services.base_path, &leads_to))
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct BulkPage {
    frame: Frame,
    verb: String,
    /// The filter, as a query and in words.
    selection: String,
    words: String,
    /// The reason of an acknowledgement, for the jobs that were not reached; empty if none was given.
    reason: String,
    /// The filter of the jobs that were not reached, as a query.
    rest: Option<String>,
    result: BulkResult,
}

/// `POST /jobs/bulk`: shows first how many jobs an operation would hit; with the field `confirmed` it is done.
pub(crate) async fn bulk(State(state): State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let (verb, selection) = (field(&fields, "verb").to_owned(), field(&fields, "selection").to_owned());
    let counts_only = field(&fields, "confirmed").is_empty();
    let query = if counts_only { format!("{selection}&dry_run=1") } else { selection.clone() };
    let body = reason_body(&fields).filter(|_| verb == "acknowledge");
    let asked = with_key(request_for(&shell, &query, body.as_ref()), &fields)?;
    let answer = match verb.as_str() {
        "acknowledge" => bulk::acknowledge(State(Arc::clone(&state)), asked).await?,
        "cancel" => bulk::cancel(State(Arc::clone(&state)), asked).await?,
        "retry" => bulk::retry(State(Arc::clone(&state)), asked).await?,
        "release" => bulk::release(State(Arc::clone(&state)), asked).await?,
        other => return Err(no_such_verb(other)),
    };
    let result: BulkResult = read_answer(answer).await?;
    let pairs: Vec<(String, String)> = form_urlencoded::parse(selection.as_bytes()).into_owned().collect();
    let filters = pairs.iter().filter(|(name, _)| name != "cursor").map(|(name, value)| (&**name, &**value));
    let words: Vec<String> = filters.clone().map(|(name, value)| format!("{name} {value}")).collect();
    let rest = result.next.as_deref().map(|next| encode(filters.chain([("cursor", next)])));
    render(&BulkPage {
        frame: Frame::new(&state, "jobs", format!("{verb} jobs")),
        verb,
        words: words.join(", "),
        reason: filled(&fields, "reason").unwrap_or_default().to_owned(),
        rest,
        selection,
        result,
    })
}

fn no_such_verb(verb: &str) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("\"{}\" is nothing that can be done here", excerpt(verb)))
}
