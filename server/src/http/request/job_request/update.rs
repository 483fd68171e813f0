//! Parses the body of `PATCH /api/jobs/{id}`.

use axum::body::Body;
use axum::http::HeaderMap;
use scheduler::input::JobUpdate;
use scheduler::new_jobs::StartTime;
use serde::Deserialize;
use utoipa::ToSchema;

use super::rules::{self, ValueFault};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::Fault;
use crate::http::request::body;

/// The body of `PATCH /api/jobs/{id}`: at least one field.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobPatch {
    /// The job does not start before this instant.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    /// The job does not start before this time from now has passed.
    #[schema(format = "longshore-duration")]
    delay: Option<String>,
    /// Higher goes first.
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i64>,
}

/// Parses the new values of a waiting job.
///
/// # Errors
/// The faults of the body; `missing_field` if it changes nothing.
pub(crate) async fn read_update(headers: &HeaderMap, body: Body) -> Result<JobUpdate, Problem> {
    update(body::json(headers, body).await?)
}

fn update(patch: JobPatch) -> Result<JobUpdate, Problem> {
    let mut faults = Vec::new();
    let mut check = |field: &str, (code, detail, hint): ValueFault| {
        let fault = Fault { code: code.name().into(), field: field.into(), detail, hint: Some(hint) };
        faults.push((code, fault));
    };
    if patch.run_at.is_some() && patch.delay.is_some() {
        check("delay", rules::two_starts());
    }
    let mut update = JobUpdate::default();
    if let Some(text) = patch.run_at {
        update.run_at = rules::instant(&text).map_err(|fault| check("run_at", fault)).ok().map(StartTime::At);
    }
    if let Some(text) = patch.delay {
        update.run_at = rules::delay(&text).map_err(|fault| check("delay", fault)).ok();
    }
    if let Some(priority) = patch.priority {
        update.priority = rules::priority(priority).map_err(|fault| check("priority", fault)).ok();
    }
    if !faults.is_empty() {
        return Err(Problem::faults(faults));
    }
    if update == JobUpdate::default() {
        let detail = "nothing is to be changed: there are run_at, delay and priority";
        return Err(Problem::new(ProblemCode::MissingField, detail));
    }
    Ok(update)
}
