//! `PATCH /api/batches/{id}`: the limits of a live batch.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use protocol::JobId;
use scheduler::step::{Answer, Rejection};

use super::{find, full};
use crate::auth::audit::note;
use crate::http::api::bulk;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::batch_patch;
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::state::AppState;

pub(crate) async fn change(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Json<shapes::FullBatch>, Problem> {
    let first = JobId(id);
    let (parts, body) = request.into_parts();
    Query::of(&parts.uri)?.finish()?;
    note::object(format!("batch {first}"));
    let update = batch_patch::read(&parts.headers, body).await?;
    let batch = find(&state, first).await?;
    if batch.ended_at.is_some() {
        return Err(has_ended(first, batch.state.name()));
    }
    bulk::check_scope_of_members(&state, first).await?;
    match state.services.engine.change_batch(first, update).await? {
        Answer::Done => full(&state, first).await.map(Json),
        Answer::Rejected(Rejection::NotLive) => Err(has_ended(first, "ended")),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// Refuses to change, pause or resume a batch whose members have all ended.
pub(crate) fn has_ended(first: JobId, state: &'static str) -> Problem {
    let problem = Problem::new(ProblemCode::AlreadyFinished, format!("batch {first} has ended: {state}"));
    problem.state(state).hint("its members do not wait any more; GET /api/batches?state=waiting,running lists those that have not ended")
}
