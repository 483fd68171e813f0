//! `POST /api/jobs/{name}` and `POST /api/jobs/{id}/retry`: one new job.
//!
//! This is the hot path: the answer is written from the engine's reply, without a read of the store.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use protocol::JobId;
use scheduler::definition::Definition;
use scheduler::input::KeyHolder;
use scheduler::job::State as JobState;
use scheduler::new_jobs::NewJob;
use scheduler::step::{Accepted, Answer, PendingReason, Rejection};

use crate::auth::actor::Actor;
use crate::engine::Busy;
use crate::http::api::admission;
use crate::http::api::batches::array;
use crate::http::api::jobs::{find, find_with_retries, location, wait_until_ended};
use crate::http::api::logs;
use crate::http::api::repeat::repeat_of;
use crate::http::api::schedule_choice::ScheduleChoice;
use crate::http::api::submission_answer::{
    DUPLICATE, REPLAYED, YES, json, pending_now, refused_by_pause, warning,
};
use crate::http::api::worker_names;
use crate::http::middleware::body_budget::BodyReservation;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter::{self, job_in_state};
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::cleared_fields::ClearedFields;
use crate::http::request::idempotency_key::{
    explain_pruned, find_accepted, find_repeated, parse_key, submit_with_key,
};
use crate::http::request::job_request;
use crate::http::request::path::{Id, Name};
use crate::http::request::query::Query;
use crate::http::request::submit_params::{MembersChoice, RevisionChoice, SubmitParams};
use crate::http::request::trace_context::TraceContext;
use crate::http::state::AppState;
use crate::params::Checker;
use crate::store::slot_in;

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
    let (text, held) = body::submission(&state.body_budget, &parts.headers, body).await?;
    let actor = Actor::current();
    actor.check_scope(&name)?;
    let mut request = job_request::read_submission(&text)?;
    let trace = TraceContext::read(&parts.headers);
    let key = parse_key(&parts, &schedule.target_text(&name), &text)?;
    if let Some(batch) = request.batch.take() {
        params.check_batch()?;
        schedule.check_batch()?;
        return array::submit(&state, &name, request, *batch, &trace, params.require_worker, key).await;
    }
    let definitions = state.services.catalogue.current();
    match admission::find_to_run(&definitions, &name, request.job.timeout, actor.role) {
        Ok(entry) => {
            let definition = &entry.definition;
            let checker = Checker::new(&definition.submission.params);
            let completed = match schedule.complete(request, definition, &checker) {
                Ok(job) => worker_names::check(&state, &job).await.map(|()| job),
                Err(refusal) => Err(refusal),
            };
            let mut job = match completed {
                Ok(job) => job,
                Err(refusal) => {
                    return replay(&state, find_repeated(&state, key, refusal).await?, params).await;
                }
            };
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
    let cleared = ClearedFields::read(&mut query)?;
    let params = SubmitParams::read(query)?;
    let (text, held) = body::submission(&state.body_budget, &parts.headers, body).await?;
    let target = cleared.append_to(members.append_to(revision.target_text(id)));
    let mut changes = job_request::read_one(&text)?;
    changes.cleared.extend(cleared);
    let key = parse_key(&parts, &target, &text)?;
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
    let narrowing = job.narrowing.clone();
    let details = job.details.as_ref().filter(|_| job.retry_of.is_some());
    let slot = details.and_then(|details| slot_in(&details.overrides.environment));
    let draft = shapes::Job {
        scheduled_at: slot.as_ref().map(|slot| Time(slot.at)),
        schedule: slot.map(|slot| slot.schedule),
        priority: job.priority.unwrap_or(definition.priority),
        timeout: job.timeout.map(presenter::timeout),
        retry_of: job.retry_of.map(|of| of.0),
        submitted_by: Actor::current().token.as_deref().map(str::to_owned),
        labels: job.details.iter().flat_map(|details| details.labels.iter().cloned()).collect(),
        workers: presenter::asked_workers(job.narrowing.as_deref()),
        requires: presenter::asked_labels(job.narrowing.as_deref()),
        ..shapes::Job::default()
    };
    let answered = submit_with_key(state, vec![job], None, params.require_worker, key).await?;
    // The client may wait for the end of the job for minutes.
    drop(held);
    match answered {
        Answer::Accepted(accepted) => {
            let asked = narrowing.as_ref().map(|narrowing| &narrowing.workers[..]).unwrap_or_default();
            let departed = match accepted.pending {
                Some(PendingReason::NoMatch | PendingReason::NoWorker) => {
                    worker_names::departed(state, asked).await
                }
                _ => None,
            };
            let shown = shapes::Job {
                pending_reason: accepted
                    .pending
                    .map(|reason| pending_now(state, reason, Some(definition), narrowing.as_deref())),
                warning: accepted
                    .pending
                    .and_then(|reason| warning(state, reason, Some(definition), narrowing.as_deref()))
                    .map(|warning| warning.and(departed)),
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
        Answer::Rejected(Rejection::NoWorker(PendingReason::Paused)) => {
            Err(refused_by_pause(state, Some(definition)))
        }
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// Answers a repeated request with the present state of its job.
async fn replay(state: &Arc<AppState>, holder: KeyHolder, params: SubmitParams) -> Result<Response, Problem> {
    let record = find(state, holder.job).await.map_err(|problem| explain_pruned(problem, &holder))?;
    let shown = shapes::Job { replayed: true, ..state.presenter().job(record.row) };
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
    let shapes::Job {
        schedule,
        scheduled_at,
        priority,
        timeout,
        retry_of,
        submitted_by,
        labels,
        workers,
        requires,
        ..
    } = draft;
    // A job that was assigned at once is in its first attempt.
    let attempt_count = u32::from(accepted.state == JobState::Assigned);
    shapes::Job {
        priority,
        timeout,
        schedule,
        scheduled_at,
        retry_of,
        submitted_by,
        labels,
        workers,
        requires,
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
        return Ok((status, headers, logs::follow(state, job).await).into_response());
    }
    let Some(timeout) = params.wait else { return Ok(json(status, headers, &shown)) };
    let found = match wait_until_ended(state, job, timeout).await {
        Ok(()) => find_with_retries(state, job).await,
        Err(denial) => Err(denial.into()),
    };
    match found {
        Ok(record) => {
            let mut full = state.full_job(record).await;
            full.job.warning = shown.warning;
            full.job.duplicate = shown.duplicate;
            full.job.replayed = shown.replayed;
            Ok(json(status, headers, &full))
        }
        // The job was accepted, and the status must say so, also if the token was revoked since.
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
