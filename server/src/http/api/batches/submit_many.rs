//! `POST /api/jobs`: a batch, accepted as a whole or refused as a whole.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use protocol::{JobId, Revision};
use scheduler::batches::{BatchOptions, BatchUnique};
use scheduler::definition::Definition;
use scheduler::input::KeyHolder;
use scheduler::new_jobs::NewJob;
use scheduler::placement::rules::WorkerSelector;
use scheduler::step::{Accepted, Answer, PendingReason, Rejection};

use super::right_to_replace;
use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::catalogue::Definitions;
use crate::excerpt::excerpt;
use crate::http::api::admission;
use crate::http::api::submission_answer::{DUPLICATE, REPLAYED, YES, json, refused_by_pause, warning};
use crate::http::api::worker_names;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::content_type::{self, Form};
use crate::http::request::definition;
use crate::http::request::idempotency_key::{find_accepted, find_repeated, parse_key, submit_with_key};
use crate::http::request::job_request::{self, JobRequest, MANY_BYTES_MAX, MANY_MAX};
use crate::http::request::predecessors::EntryNames;
use crate::http::request::query::Query;
use crate::http::request::stored_size::StoredSize;
use crate::http::request::submission;
use crate::http::request::submit_params::SubmitParams;
use crate::http::request::trace_context::TraceContext;
use crate::http::state::AppState;
use crate::params::Checker;

/// `POST /api/jobs`
pub(crate) async fn many(State(state): State<Arc<AppState>>, request: Request) -> Result<Response, Problem> {
    state.check_accepting()?;
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let options = BatchOptions { unique: unique(&mut query)?, ..options(&mut query)? };
    let params = SubmitParams::read(query)?;
    params.check_batch()?;
    let form = content_type::form(&parts.headers, true)?;
    let length: Option<usize> =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut reservation = state.body_budget.reservation();
    let pieces = body::pieces(body, MANY_BYTES_MAX, MANY_TIMEOUT, &mut reservation).await?;
    let definitions = state.services.catalogue.current();
    let fingerprint_text = fingerprint_text(&options);
    let actor = Actor::current();
    let read = move || {
        let text = Bytes::from(pieces.concat());
        drop(pieces);
        let key = parse_key(&parts, &fingerprint_text, &text)?;
        let trace = TraceContext::read(&parts.headers);
        let mut names = DefinitionNames::default();
        Ok((read_many(&text, form, &definitions, &actor, &trace, &mut names), names, key))
    };
    let is_small = length.is_some_and(|length| length <= INLINE_BYTES_MAX);
    let (jobs, names, key) = if is_small { read()? } else { state.parse_blocking(read).await? };
    note::object(format!("definitions {}", note::list(names.0)));
    let jobs = match jobs {
        Ok(jobs) => worker_names::check_list(&state, &jobs).await.map(|()| jobs),
        Err(refusal) => Err(refusal),
    };
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(refusal)
            if matches!(
                refusal.code(),
                ProblemCode::UnknownJob | ProblemCode::DefinitionDisabled | ProblemCode::ForbiddenByPolicy
            ) =>
        {
            return find_accepted(&state, key, refusal).await.map(|holder| replayed(&state, holder));
        }
        Err(refusal) => {
            return find_repeated(&state, key, refusal).await.map(|holder| replayed(&state, holder));
        }
    };
    let options = match right_to_replace::look_up(&state, options).await {
        Ok(options) => options,
        Err(refusal) => {
            return find_accepted(&state, key, refusal).await.map(|holder| replayed(&state, holder));
        }
    };
    // The body may have taken minutes to arrive; check the disk again.
    state.check_disk_space()?;
    let asked = Asked::new(jobs.len(), &jobs);
    let answered = submit_with_key(&state, jobs, Some(options), params.require_worker, key).await?;
    answer(&state, answered, &asked).await
}

/// Reads `batch_name`, `max_failures` and `concurrency`.
///
/// # Errors
/// `invalid_batch`, `out_of_range`.
pub(super) fn options(query: &mut Query) -> Result<BatchOptions, Problem> {
    let name = query.text("batch_name")?;
    if let Some(Err((detail, hint))) = name.as_deref().map(job_request::batch_name) {
        return Err(Problem::new(ProblemCode::InvalidBatch, detail).field("?batch_name").hint(hint));
    }
    let mut count = |field: &'static str| {
        let count = query.number(field)?.map(|count| {
            let count = job_request::count(i64::try_from(count).unwrap_or(i64::MAX));
            count.map_err(|(code, detail, hint)| {
                Problem::new(code, detail).field(format!("?{field}")).hint(hint)
            })
        });
        count.transpose()
    };
    let (max_failures, concurrency) = (count("max_failures")?, count("concurrency")?);
    Ok(BatchOptions { name, max_failures, concurrency, ..BatchOptions::default() })
}

/// Reads `batch_unique_key` and `on_duplicate`.
///
/// # Errors
/// `invalid_batch`, `too_long`.
fn unique(query: &mut Query) -> Result<Option<BatchUnique>, Problem> {
    let (key, on_duplicate) = (query.text("batch_unique_key")?, query.text("on_duplicate")?);
    job_request::batch_unique(key.as_deref(), on_duplicate.as_deref()).map_err(
        |(field, (code, detail, hint))| Problem::new(code, detail).field(format!("?{field}")).hint(hint),
    )
}

/// The options of the batch within the fingerprint behind its idempotency key.
fn fingerprint_text(options: &BatchOptions) -> String {
    match options {
        BatchOptions { name: None, max_failures: None, concurrency: None, unique: None, .. } => String::new(),
        BatchOptions { name, max_failures, concurrency, unique, .. } => {
            let text = |number: &Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
            let name = name.as_deref().unwrap_or_default();
            // Without a limit as before there was one: keys outlive an upgrade. A name has no line break.
            let at_once = concurrency.map(|limit| format!("{limit} at once\n")).unwrap_or_default();
            let unique = unique.as_ref().map(|it| format!("\n{} {}", it.on_duplicate.name(), it.key));
            format!("batch {} {at_once}{name}{}", text(max_failures), unique.unwrap_or_default())
        }
    }
}

/// Answers with the batch. Jobs that were asked for and are not in it are duplicates.
///
/// # Errors
/// The engine rejected the request.
pub(crate) async fn answer(state: &AppState, answer: Answer, asked: &Asked) -> Result<Response, Problem> {
    match answer {
        Answer::Accepted(accepted) => {
            if let Some(replaced) = accepted.replaces {
                note::detail(format!("batch {}, replaces batch {replaced}", accepted.first));
            }
            let made = created(state, &accepted, asked).await;
            Ok(json(StatusCode::CREATED, location(state, accepted.first), &made))
        }
        Answer::Duplicate(job) => Ok(json(
            StatusCode::OK,
            HeaderMap::from_iter([(DUPLICATE, YES)]),
            &only_duplicates(job, asked.count),
        )),
        Answer::Replayed(holder) => Ok(replayed(state, holder)),
        Answer::ExistingBatch { first, count } => Ok(existing(state, first, count)),
        Answer::Rejected(Rejection::NoWorker(PendingReason::Paused)) => {
            Err(refused_by_pause(state, asked.paused_definition(state).as_deref()))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// The definitions that a batch names, for the audit log: the first few different ones.
#[derive(Debug, Default)]
pub(crate) struct DefinitionNames(BTreeSet<String>);

impl DefinitionNames {
    fn add(&mut self, name: &str) {
        if self.0.len() < NAMES_MAX {
            self.0.insert(excerpt(name));
        }
    }
}

/// Parses the jobs of a batch.
///
/// # Errors
/// The faults of the wrong entries, of the first of them if there are many.
pub(crate) fn read_many(
    text: &[u8],
    form: Form,
    definitions: &Definitions,
    actor: &Actor,
    trace: &TraceContext,
    seen: &mut DefinitionNames,
) -> Result<Vec<NewJob>, Problem> {
    let mut jobs = Vec::new();
    let mut size = StoredSize::default();
    let mut names = EntryNames::default();
    // To compile the patterns of a definition takes longer than to check a job.
    let mut found: HashMap<String, (&Definition, Checker<'_>)> = HashMap::new();
    let take = |request: JobRequest<'_>| {
        if jobs.len() == MANY_MAX {
            return Err(Problem::new(
                ProblemCode::TooManyJobs,
                format!("more than {MANY_MAX} jobs in one request"),
            ));
        }
        let Some(name) = request.name.clone() else {
            return Err(Problem::new(ProblemCode::MissingField, "an entry needs the name of a definition")
                .field("name"));
        };
        let (definition, checker) = match found.get(&*name) {
            Some(known) => known,
            None => {
                seen.add(&name);
                actor.check_scope(&name).map_err(|denial| Problem::from(denial).field("name"))?;
                let entry = definition::find(definitions, &name).map_err(|problem| problem.field("name"))?;
                if !entry.definition.enabled {
                    return Err(Problem::from(Rejection::Disabled).field("name"));
                }
                let definition = entry.definition.as_ref();
                let checker = Checker::new(&definition.submission.params);
                found.entry(name.into_owned()).or_insert((definition, checker))
            }
        };
        let position = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        names.add(position, request.entry_name.as_deref(), &definition.name);
        names.add_after(position, request.after_entries.clone());
        admission::check_policy(definitions, definition, request.job.timeout, actor.role)?;
        let mut job = submission::complete(request, definition, checker)?;
        size.add(job.details.as_deref(), 1)?;
        trace.add_to(&mut job);
        jobs.push(job);
        Ok(())
    };
    match form {
        Form::Lines => job_request::read_lines(text, take)?,
        Form::Json => job_request::read_list(text, take)?,
    }
    names.resolve(&mut jobs)?;
    match jobs.is_empty() {
        true => Err(Problem::new(ProblemCode::EmptyBatch, "the body has no entry")),
        false => Ok(jobs),
    }
}

/// The jobs that a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(super) count: u32,
    revisions: BTreeSet<Revision>,
    /// The first workers that they ask for.
    workers: BTreeSet<WorkerSelector>,
}

impl Asked {
    /// `jobs` has each definition at least once.
    pub(crate) fn new<'j>(count: usize, jobs: impl IntoIterator<Item = &'j NewJob>) -> Self {
        let (mut revisions, mut workers) = (BTreeSet::new(), BTreeSet::new());
        for job in jobs {
            revisions.insert(job.revision);
            if workers.len() < WORKERS_MAX {
                workers.extend(job.narrowing.iter().flat_map(|narrowing| narrowing.workers.iter().cloned()));
            }
        }
        Self { count: u32::try_from(count).unwrap_or(u32::MAX), revisions, workers }
    }

    /// A definition of these jobs that is paused.
    fn paused_definition(&self, state: &AppState) -> Option<Arc<Definition>> {
        let snapshot = state.services.engine.snapshot();
        let mut definitions = self.revisions.iter().filter_map(|revision| snapshot.definitions.get(revision));
        definitions.find(|it| snapshot.pauses.of_jobs(it).next().is_some()).map(Arc::clone)
    }
}

/// Workers that the warning beside a batch looks at.
const WORKERS_MAX: usize = 100;

/// A batch that was just made. Jobs that were `asked` for and are not in it are duplicates.
pub(super) async fn created(state: &AppState, accepted: &Accepted, asked: &Asked) -> shapes::Batch {
    // The reason is that of the first job; a pause of any of them is worth more.
    let paused = asked.paused_definition(state);
    let reason = paused.as_ref().map(|_| PendingReason::Paused).or(accepted.pending);
    let warning = reason.and_then(|reason| warning(state, reason, paused.as_deref(), None));
    let departed = worker_names::departed(state, &asked.workers).await;
    let warning = match (warning, departed) {
        (Some(warning), departed) => Some(warning.and(departed)),
        // The first job of the batch can run, and others cannot.
        (None, Some(text)) => Some(shapes::Reason { code: "no_worker_matches".into(), text: text.into() }),
        (None, None) => None,
    };
    shapes::Batch {
        duplicates: asked.count.saturating_sub(accepted.count),
        created_at: Some(Time(accepted.created_at)),
        warning,
        replaces: accepted.replaces.map(|batch| batch.0),
        ..batch(accepted.first, accepted.count)
    }
}

/// The answer if nothing was made: `holder` has the unique key of the first of the `asked` jobs.
pub(super) fn only_duplicates(holder: JobId, asked: u32) -> shapes::Batch {
    shapes::Batch { duplicates: asked, duplicate_of: Some(holder.0), ..shapes::Batch::default() }
}

pub(crate) fn replayed(state: &AppState, holder: KeyHolder) -> Response {
    let mut headers = location(state, holder.job);
    headers.insert(REPLAYED, YES);
    json(StatusCode::OK, headers, &replayed_batch(&holder))
}

/// The answer if a batch that has not ended has the unique key: that batch.
pub(super) fn existing(state: &AppState, first: JobId, count: u32) -> Response {
    note::detail(format!("no batch: batch {first} has the unique key"));
    let mut headers = location(state, first);
    headers.insert(DUPLICATE, YES);
    json(StatusCode::OK, headers, &existing_batch(first, count))
}

/// A batch that was there before.
pub(super) fn existing_batch(first: JobId, count: u32) -> shapes::Batch {
    shapes::Batch { existing: true, ..batch(first, count) }
}

/// The batch that an earlier request made.
pub(super) fn replayed_batch(holder: &KeyHolder) -> shapes::Batch {
    shapes::Batch { replayed: true, ..batch(holder.job, holder.count) }
}

/// A batch by its first job.
pub(super) fn batch(first: JobId, count: u32) -> shapes::Batch {
    let last = first.0 + u64::from(count.saturating_sub(1));
    shapes::Batch { batch: first.0, count, first: first.0, last, ..shapes::Batch::default() }
}

/// The header that names a batch.
pub(super) fn location(state: &AppState, first: JobId) -> HeaderMap {
    let location = HeaderValue::try_from(format!("{}/api/batches/{first}", state.services.base_path));
    location.map(|location| HeaderMap::from_iter([(header::LOCATION, location)])).unwrap_or_default()
}

/// Different definitions that the audit log names of one batch.
const NAMES_MAX: usize = 10;

/// Enough for 64 MiB at two megabits a second.
const MANY_TIMEOUT: Duration = Duration::from_secs(300);

/// Bodies up to this size are parsed on the async thread: less than half a millisecond.
const INLINE_BYTES_MAX: usize = 64 << 10;
