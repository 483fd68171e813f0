//! The parts that answers to submissions share: the JSON, the headers that mark a repeated request or a duplicate, and the warning.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use scheduler::definition::Definition;
use scheduler::placement::narrowing::Narrowing;
use scheduler::step::PendingReason;

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter;
use crate::http::present::shapes;
use crate::http::state::AppState;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, headers: HeaderMap, value: &impl serde::Serialize) -> Response {
    let mut text = Vec::with_capacity(JOB_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => (status, headers, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// The reason for which an accepted job waits; of a paused one with the pauses.
pub(crate) fn pending_now(
    state: &AppState,
    reason: PendingReason,
    definition: Option<&Definition>,
    narrowing: Option<&Narrowing>,
) -> shapes::Reason {
    match reason {
        PendingReason::Paused => presenter::paused(&state.services.engine.snapshot(), definition, None),
        reason => presenter::pending_of(reason, narrowing),
    }
}

/// The problem of a submission that requires a worker, to a paused definition. No worker is to blame.
pub(crate) fn refused_by_pause(state: &AppState, definition: Option<&Definition>) -> Problem {
    let reason = presenter::paused(&state.services.engine.snapshot(), definition, None);
    Problem::new(ProblemCode::NoWorker, reason.text)
        .hint("resume it, or leave require_worker out: the job then waits for the end of the pause")
        .retry_after(5)
}

/// A warning beside an accepted job: it is paused, its secrets are missing, or no worker can run it at present.
pub(crate) fn warning(
    state: &AppState,
    reason: PendingReason,
    definition: Option<&Definition>,
    narrowing: Option<&Narrowing>,
) -> Option<shapes::Reason> {
    if matches!(reason, PendingReason::Paused | PendingReason::SecretsMissing) {
        return Some(pending_now(state, reason, definition, None));
    }
    // A pause also holds members back, and what is not due yet.
    if matches!(reason, PendingReason::Members | PendingReason::NotDue) {
        let snapshot = state.services.engine.snapshot();
        let paused = definition.filter(|it| snapshot.pauses.of_jobs(it).next().is_some());
        return paused.map(|definition| presenter::paused(&snapshot, Some(definition), None));
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
    matches_none.then(|| shapes::Reason {
        code: "no_worker_matches".into(),
        ..presenter::pending_of(reason, narrowing)
    })
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const YES: HeaderValue = HeaderValue::from_static("true");

/// Header that marks the answer to a repeated request.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// Header that marks the answer to a submission that made no job, because another one has its unique key.
pub(crate) const DUPLICATE: HeaderName = HeaderName::from_static("unique-duplicate");

/// Initial size of the buffer; most jobs fit.
const JOB_BYTES: usize = 512;
