//! The HTTP face: one resource per file, every error a problem document, no decisions.
//!
//! What changes something is put to the engine and answered once it is durable; what only reads comes from the archive through a
//! bounded number of blocking reads, and from the published snapshot. `view` holds the shapes of all answers, `front` what is done
//! for every request. `docs/http-api.md` is the interface in prose.

mod batch;
mod body;
pub mod code;
mod cursor;
mod definitions;
mod desk;
mod explain;
mod fields;
mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod jobs;
mod key;
mod labels;
mod output;
mod path;
pub mod problem;
mod query;
mod reload;
mod room;
mod show;
mod story;
mod submit;
pub mod view;
mod wanted;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

pub use desk::App;
use desk::Desk;

/// Everything that the server answers to over HTTP, but for the socket of workers, which `workers` brings along
/// (`GET /api/workers/connect`; its requests have passed the guards already).
///
/// What takes parameters behind the question mark reads them and refuses those that it does not know; everything else is `plain` and
/// refuses them all.
pub fn router(app: App, workers: Router) -> Router {
    let base_path = app.base_path.clone();
    let desk = Arc::new(Desk::new(app));
    let asked = Router::new()
        .route("/api/jobs/{name}", post(submit::one).get(jobs::one))
        .route("/api/jobs", post(batch::many).get(jobs::list))
        .route("/api/jobs/{id}/retry", post(submit::again))
        .route("/api/jobs/{id}/logs", get(output::of_job))
        .route("/api/workers", get(workers::list))
        .route("/api/workers/{id}/{verb}", post(workers::operate))
        .route("/api/definitions", get(definitions::list));
    let plain = Router::new()
        .route("/api/jobs/{id}/explain", get(explain::job))
        .route("/api/jobs/{id}/cancel", post(jobs::cancel))
        .route("/api/jobs/{id}/release", post(jobs::release))
        .route("/api/workers/{id}", get(workers::one).patch(workers::change))
        .route("/api/definitions/{name}", get(definitions::one))
        .route("/api/definitions/reload", post(reload::reload).get(reload::one_of_that_name))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/version", get(health::version))
        .route("/problems/{code}", get(health::problem));
    let inner = asked
        .merge(plain.route_layer(from_fn(query::none)))
        .fallback(health::nothing_here)
        .with_state(Arc::clone(&desk))
        .merge(workers.layer(from_fn(query::none)))
        .layer(from_fn_with_state(Arc::clone(&desk), front::serve));
    if base_path.is_empty() {
        return inner;
    }
    let outside = Router::new().fallback(health::nothing_here).layer(from_fn_with_state(desk, front::serve));
    outside.nest(&base_path, inner)
}
