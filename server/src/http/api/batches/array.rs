//! `POST /api/jobs/{name}` with `count` or `each`: several jobs of one definition, accepted together.

use std::sync::Arc;

use axum::response::Response;
use scheduler::batches::BatchOptions;
use scheduler::new_jobs::NewJobs;
use serde_json::Value;

use super::right_to_replace;
use super::submit_many::{Asked, answer, replayed};
use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::catalogue::Definitions;
use crate::http::api::admission;
use crate::http::api::worker_names;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::definition;
use crate::http::request::idempotency_key::{find_accepted, find_repeated, submit_with_key};
use crate::http::request::job_request::{BatchFields, JobRequest, MANY_MAX};
use crate::http::request::stored_size::StoredSize;
use crate::http::request::submission;
use crate::http::request::trace_context::TraceContext;
use crate::http::state::AppState;
use crate::params::Checker;

/// Submits the jobs that a request asks for.
///
/// # Errors
/// The faults of the request, or the engine rejected it.
pub(crate) async fn submit(
    state: &Arc<AppState>,
    name: &str,
    request: JobRequest<'_>,
    batch: BatchFields,
    trace: &TraceContext,
    require_worker: bool,
    key: Option<(Arc<str>, u128)>,
) -> Result<Response, Problem> {
    let BatchFields { count, each, options } = batch;
    note::object(format!("definition {name}"));
    note::detail("several jobs");
    let definitions = state.services.catalogue.current();
    let role = Actor::current().role;
    if let Err(refusal) = admission::find_to_run(&definitions, name, request.job.timeout, role) {
        return find_accepted(state, key, refusal).await.map(|holder| replayed(state, holder));
    }
    let request = JobRequest { name: None, ..request };
    let jobs = match (count, each) {
        (Some(count), _) => copies(&definitions, name, request, trace, count),
        (None, Some(each)) => {
            let (name, request, trace) = (name.to_owned(), into_owned(request), trace.clone());
            state.parse_blocking(move || one_for_each(&definitions, &name, &request, &trace, each)).await
        }
        (None, None) => return Err(needs_jobs(&options)),
    };
    let jobs = match jobs {
        Ok(jobs) => worker_names::check_batch(state, &jobs).await.map(|()| jobs),
        Err(refusal) => Err(refusal),
    };
    let jobs = match jobs {
        Ok(jobs) => jobs,
        Err(refusal) => {
            return find_repeated(state, key, refusal).await.map(|holder| replayed(state, holder));
        }
    };
    let options = match right_to_replace::look_up(state, options).await {
        Ok(options) => options,
        Err(refusal) => {
            return find_accepted(state, key, refusal).await.map(|holder| replayed(state, holder));
        }
    };
    let asked = Asked::new(jobs.len(), jobs.distinct());
    answer(state, submit_with_key(state, jobs, Some(options), require_worker, key).await?, &asked).await
}

/// Jobs that are all alike.
fn copies(
    definitions: &Definitions,
    name: &str,
    request: JobRequest<'_>,
    trace: &TraceContext,
    count: u32,
) -> Result<NewJobs, Problem> {
    let definition = &definition::find(definitions, name)?.definition;
    let checker = Checker::new(&definition.submission.params);
    let mut job = submission::complete(request, definition, &checker)?;
    StoredSize::default()
        .add(job.details.as_deref(), count as usize)
        .map_err(|problem| problem.field("count"))?;
    trace.add_to(&mut job);
    Ok(NewJobs::Copies(Box::new(job), count))
}

/// A job for each set of parameters, laid over those of the request.
fn one_for_each(
    definitions: &Definitions,
    name: &str,
    request: &JobRequest<'static>,
    trace: &TraceContext,
    each: Vec<Vec<(String, Value)>>,
) -> Result<NewJobs, Problem> {
    if each.is_empty() {
        return Err(Problem::new(ProblemCode::EmptyBatch, "the list has no entry").field("each"));
    }
    if each.len() > MANY_MAX {
        return Err(Problem::new(
            ProblemCode::TooManyJobs,
            format!("more than {MANY_MAX} jobs in one request"),
        ));
    }
    let definition = &definition::find(definitions, name)?.definition;
    let checker = Checker::new(&definition.submission.params);
    let mut jobs = Vec::with_capacity(each.len());
    let mut size = StoredSize::default();
    for (index, own) in each.into_iter().enumerate() {
        let mut params = request.params.clone();
        params.retain(|(name, _)| !own.iter().any(|(changed, _)| changed == name));
        params.extend(own);
        let request = JobRequest { job: request.job.clone(), params, ..JobRequest::default() };
        let mut job = submission::complete(request, definition, &checker)
            .map_err(|problem| problem.within(&format!("each[{index}]"), None))?;
        size.add(job.details.as_deref(), 1).map_err(|problem| problem.field("each"))?;
        trace.add_to(&mut job);
        jobs.push(job);
    }
    Ok(jobs.into())
}

fn into_owned(request: JobRequest<'_>) -> JobRequest<'static> {
    let JobRequest { job, params, .. } = request;
    JobRequest { job, params, ..JobRequest::default() }
}

fn needs_jobs(options: &BatchOptions) -> Problem {
    let field = match options {
        BatchOptions { name: Some(_), .. } => "batch_name",
        BatchOptions { max_failures: Some(_), .. } => "max_failures",
        BatchOptions { unique: Some(_), .. } => "batch_unique_key",
        _ => "concurrency",
    };
    Problem::new(
        ProblemCode::InvalidBatch,
        format!("{field} is for several jobs, and this request makes one"),
    )
    .field(field)
    .hint("add count, or a list each")
}
