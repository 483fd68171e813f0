//! The HTTP API: routes, handlers and middleware. It makes no decisions about jobs.
//!
//! Changes go to the engine and are answered once they are durable. Reads come from the archive through a bounded number of blocking calls,
//! and from the published snapshot. `docs/http-api.md` describes the interface.

mod api;
mod ends_count;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod middleware;
mod openapi;
pub mod present;
pub(crate) mod request;
mod state;
mod web;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use api::{
    acknowledge, audit, backfill, batches, bulk, definition_changes, definitions, deploy, events, explain,
    health, jobs, limits, logs, metrics, notifications, pauses, pipelines, plan, reload, schedules,
    statistics, submit, tokens, usage, whoami, workers,
};
use middleware::{compression, deprecation, front};
use request::query;
use state::AppState;
pub use state::{BODY_BYTES_MAX, Services};

/// Bytes of a list of jobs in one request.
pub const LIST_BYTES_MAX: usize = request::job_request::MANY_BYTES_MAX;

/// Builds the router of all paths. `worker_connections` brings `GET /api/workers/connect`; its requests pass the same middleware.
///
/// Handlers of `with_query` read their query parameters and refuse unknown ones. All others take none.
pub fn router(services: Services, worker_connections: Router) -> Router {
    let base_path = services.base_path.clone();
    let state = Arc::new(AppState::new(services));
    let with_query = Router::new()
        .route("/api/jobs/{name}", post(submit::one).get(jobs::one).patch(jobs::update))
        .route("/api/jobs/cancel", post(bulk::cancel).get(bulk::not_an_id))
        .route("/api/jobs/retry", post(bulk::retry).get(bulk::not_an_id))
        .route("/api/jobs/release", post(bulk::release).get(bulk::not_an_id))
        .route("/api/jobs/acknowledge", post(bulk::acknowledge).get(bulk::not_an_id))
        .route("/api/jobs", post(batches::submit_many::many).get(jobs::list))
        .route("/api/jobs/{id}/retry", post(submit::retry))
        .route("/api/jobs/{id}/pipeline/retry", post(pipelines::retry))
        .route("/api/jobs/{id}/logs", get(logs::of_job))
        .route("/api/jobs/{id}/usage", get(usage::of_job))
        .route("/api/tokens/{name}/revoke", post(tokens::revoke))
        .route("/api/logs/search", get(logs::search::search))
        .route("/api/batches", get(batches::list))
        .route("/api/batches/{id}", get(batches::one).patch(batches::change))
        .route("/api/batches/{id}/{verb}", post(batches::operate))
        .route("/api/audit", get(audit::list))
        .route("/api/events", get(events::stream))
        .route("/api/notifications", get(notifications::list))
        .route("/api/notifications/send", post(notifications::send_all))
        .route("/api/workers", get(workers::list))
        .route("/api/workers/{id}/{verb}", post(workers::operate))
        .route("/api/limits", get(limits::list))
        .route("/api/definitions", get(definitions::list).put(deploy::deploy))
        .route("/api/definitions/changes", get(definition_changes::list))
        .route("/api/definitions/reload", post(reload::reload))
        .route("/api/definitions/{name}/fires", get(schedules::fires))
        .route("/api/definitions/{name}/statistics", get(statistics::of_definition))
        .route("/api/definitions/{name}/backfill", post(backfill::backfill))
        .route("/api/schedules", get(schedules::list))
        .route("/api/definitions/{name}/{verb}", post(pauses::pause_definition))
        .route("/api/pauses", get(pauses::list))
        .route("/api/pause", post(pauses::pause_all))
        .route("/api/resume", post(pauses::pause_all));
    let plain = Router::new()
        .route("/api/jobs/{id}/pipeline", get(pipelines::show))
        .route("/api/jobs/{id}/explain", get(explain::job))
        .route("/api/batches/{id}/explain", get(batches::explain))
        .route("/api/jobs/{id}/cancel", post(jobs::cancel))
        .route("/api/jobs/{id}/release", post(jobs::release))
        .route("/api/jobs/{id}/acknowledge", post(acknowledge::add).delete(acknowledge::remove))
        .route("/api/workers/{id}", get(workers::one).patch(workers::change))
        .route("/api/definitions/{name}", get(definitions::one))
        .route("/api/definitions/reload", get(reload::definition_named_reload))
        .route("/api/definitions/plan", get(plan::definition_named_plan).post(plan::plan))
        .route("/api/schedules/{verb}", post(pauses::pause_schedules))
        .route("/api/notifications/test", post(notifications::test))
        .route("/api/notifications/{id}/send", post(notifications::send))
        .route("/api/tokens", get(tokens::list).post(tokens::create))
        .route("/api/whoami", get(whoami::show))
        .route("/metrics", get(metrics::scrape))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/version", get(health::version))
        .route("/openapi.json", get(openapi::serve))
        .route("/problems/{code}", get(health::problem));
    let api = with_query.merge(plain.route_layer(from_fn(query::none)));
    let inner = deprecation::announce(api, deprecation::TABLE)
        .merge(web::router(&state))
        .fallback(health::nothing_here)
        .with_state(Arc::clone(&state))
        .layer(compression::layer())
        .merge(worker_connections.layer(from_fn(query::none)))
        .layer(from_fn_with_state(Arc::clone(&state), front::serve));
    if base_path.is_empty() {
        return inner;
    }
    let outside = Router::new().fallback(health::nothing_here).layer(from_fn_with_state(state, front::serve));
    // As a service: a nested router has no route for the base path with a slash after it, to which every page links.
    outside.nest_service(&base_path, inner)
}
