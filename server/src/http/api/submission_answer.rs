//! The parts that answers to submissions share: the JSON, the headers that mark a repeated request or a duplicate, and the warning.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use scheduler::placement::narrowing::Narrowing;
use scheduler::step::PendingReason;

use crate::http::middleware::problem::Problem;
use crate::http::present::presenter;
use crate::http::present::shapes;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, headers: HeaderMap, value: &impl serde::Serialize) -> Response {
    let mut text = Vec::with_capacity(JOB_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => (status, headers, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A warning beside an accepted job: it is paused, its secrets are missing, or no worker can run it at present.
pub(crate) fn warning(reason: PendingReason, narrowing: Option<&Narrowing>) -> Option<shapes::Reason> {
    if matches!(reason, PendingReason::Paused | PendingReason::SecretsMissing) {
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
