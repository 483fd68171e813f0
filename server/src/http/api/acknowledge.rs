//! `POST` and `DELETE /api/jobs/{id}/acknowledge`: somebody has dealt with a failure, or takes that back. In bulk they are in `bulk`.
//!
//! The scheduler knows nothing of it: the facts are rows of ended jobs, which the store's writer changes between two commits.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use protocol::JobId;
use scheduler::job::State as JobState;
use scheduler::origin::Origin;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::clock;
use crate::http::api::jobs::find;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{DRAINING_HINT, Problem};
use crate::http::present::shapes;
use crate::http::request::path::Id;
use crate::http::request::{body, reason};
use crate::http::state::AppState;
use crate::store::{Acknowledgement, AcknowledgementChange, CommitError, RecordChange};

/// `POST /api/jobs/{id}/acknowledge`
pub(crate) async fn add(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::FullJob>, Problem> {
    let (parts, body) = request.into_parts();
    let origin = reason::read(&parts.headers, body).await?;
    change(&state, JobId(id), |jobs| AcknowledgementChange::Add(jobs, acknowledgement(origin))).await
}

/// `DELETE /api/jobs/{id}/acknowledge`
pub(crate) async fn remove(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::FullJob>, Problem> {
    body::none(request.into_body()).await?;
    change(&state, JobId(id), AcknowledgementChange::Remove).await
}

/// Changes the acknowledgement of one job. Returns the job as it is then.
async fn change(
    state: &AppState,
    job: JobId,
    change: impl FnOnce(Vec<JobId>) -> AcknowledgementChange,
) -> Result<Json<shapes::FullJob>, Problem> {
    note::object(format!("job {job}"));
    let record = find(state, job).await?;
    Actor::current().check_scope(&record.row.definition)?;
    check_failed(job, record.row.state)?;
    write(state, change(vec![job])).await?;
    Ok(Json(state.full_job(find(state, job).await?).await))
}

/// The acknowledgement of the present request.
pub(crate) fn acknowledgement(origin: Origin) -> Acknowledgement {
    Acknowledgement {
        at: clock::now().utc,
        by: Some(origin.by.to_string()).filter(|by| !by.is_empty()),
        reason: origin.reason.as_deref().map(str::to_owned),
    }
}

/// Refuses to acknowledge a job that has not failed.
///
/// # Errors
/// `not_failed`.
pub(crate) fn check_failed(job: JobId, state: JobState) -> Result<(), Problem> {
    if state.is_failure() {
        return Ok(());
    }
    let name = state.name();
    let detail = match state.has_ended() {
        true => format!("job {job} has ended as {name}: there is no failure to acknowledge"),
        false => format!("job {job} has not ended: it is {name}"),
    };
    Err(Problem::new(ProblemCode::NotFailed, detail)
        .state(name)
        .hint("GET /api/jobs?unresolved=1 lists the failures that nobody has dealt with"))
}

/// Makes a change of acknowledgements durable.
///
/// # Errors
/// `draining`, `busy`, `store_unavailable`.
pub(crate) async fn write(state: &AppState, change: AcknowledgementChange) -> Result<(), Problem> {
    state.check_not_stalled()?;
    match state.services.record_writer.change(RecordChange::Acknowledgement(change)).await {
        Some(Ok(())) => Ok(()),
        Some(Err(cause @ CommitError::Refused(_))) => Err(Problem::internal(cause)),
        Some(Err(cause)) => Err(Problem::unreadable(cause)),
        None => Err(Problem::new(ProblemCode::Draining, "the server is shutting down")
            .hint(DRAINING_HINT)
            .retry_after(5)),
    }
}
