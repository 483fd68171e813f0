//! `GET /metrics`, for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::clock;
use crate::http::middleware::problem::Problem;
use crate::http::request::accept::prefers;
use crate::http::state::AppState;
use crate::listener::tls_status::TlsStatus;
use crate::metrics::{MetricsFormat, ScrapeFacts};

/// The metrics: in OpenMetrics for a client that asks for it, else in the older format, which all clients can read.
pub(crate) async fn scrape(
    State(state): State<Arc<AppState>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (format, content_type) = match prefers(&headers, OPEN_METRICS, PLAIN_TEXT) {
        true => (MetricsFormat::OpenMetrics, OPEN_METRICS_1_0),
        false => (MetricsFormat::Text, TEXT_0_0_4),
    };
    let asked = Arc::clone(&state);
    // It looks at files, and a thousand definitions take some milliseconds.
    let text = state.block(move || Ok(text(&asked, format))).await?;
    let headers = [(header::CONTENT_TYPE, content_type), (header::VARY, HeaderValue::from_static("accept"))];
    Ok((headers, text).into_response())
}

fn text(state: &AppState, format: MetricsFormat) -> String {
    let services = &state.services;
    let segments = services.logs.segments();
    let sealed_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let snapshot = services.engine.snapshot();
    let now = clock::now().utc;
    let facts = ScrapeFacts {
        snapshot: &snapshot,
        now,
        event_readers: services.events.readers(),
        events_kept: services.events.kept(),
        database_bytes: services.storage.database_bytes(),
        log_segments: (segments.len() + 1, sealed_bytes + services.logs.growing_bytes()),
        storage_is_low: services.storage.is_low(),
        jobs_file_is_refused: services.reloader.refusal().is_some(),
        certificate_expires: services.tls.as_ref().and_then(TlsStatus::not_after),
        last_backup: services.storage.last_backup(),
        failed_backup: services.storage.failed_backup(),
        unresolved: services.archive.unresolved().ok(),
        token_expires: services.records.tokens.expiring(now).first().map(|(end, _)| *end),
    };
    services.metrics.scrape(&facts, format)
}

const PLAIN_TEXT: &str = "text/plain";
const OPEN_METRICS: &str = "application/openmetrics-text";
const TEXT_0_0_4: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OPEN_METRICS_1_0: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
