//! The dashboard: pages for people, rendered on the server, over the same functions as the API.
//!
//! A page reads what the API answers and puts it into a template (`server/templates`); a form calls the handler of the API and leads back.
//! Every page works without JavaScript; `server/static/app.js` keeps pages current. Nothing here decides anything about jobs.

mod account;
mod actions;
mod api_docs;
mod assets;
mod attention;
mod audit;
mod batches;
mod changes;
mod chart;
mod definitions;
mod format;
mod job;
mod jobs;
mod last_day;
mod limits;
mod list_address;
mod login;
mod notifications;
mod output;
mod output_search;
mod overview;
mod page;
mod page_links;
mod refusal;
mod revisions;
mod run;
mod schedules;
mod usage;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::http::state::AppState;
pub(crate) use login::redirect_to_login;
pub(crate) use refusal::AskedPage;

/// The routes of the dashboard.
pub(crate) fn router(state: &Arc<AppState>) -> Router<Arc<AppState>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/search", get(jobs::search))
        .route("/jobs", get(jobs::show))
        .route("/jobs.csv", get(jobs::csv))
        .route("/jobs.ndjson", get(jobs::ndjson))
        .route("/jobs/bulk", post(actions::bulk))
        .route("/jobs/{id}", get(job::show))
        .route("/jobs/{id}/again", get(run::again).post(run::run_again))
        .route("/jobs/{id}/output", get(output::show))
        .route("/jobs/{id}/{verb}", post(actions::job))
        .route("/batches", get(batches::list))
        .route("/batches/{id}", get(batches::one))
        .route("/batches/{id}/{verb}", post(actions::batch))
        .route("/definitions", get(definitions::list))
        .route("/definitions/{name}", get(definitions::one))
        .route("/definitions/{name}/revisions", get(revisions::show))
        .route("/definitions/{name}/run", get(run::show).post(run::run))
        .route("/definitions/{name}/{verb}", post(actions::definition))
        .route("/schedules", get(schedules::show))
        .route("/schedules/{verb}", post(actions::all_schedules))
        .route("/pause", post(actions::server))
        .route("/resume", post(actions::server))
        .route("/workers", get(workers::list))
        .route("/workers/{id}", get(workers::one))
        .route("/workers/{id}/{verb}", post(actions::worker))
        .route("/logs/search", get(output_search::show))
        .route("/notifications", get(notifications::show))
        .route("/notifications/test", post(notifications::test))
        .route("/notifications/send", post(notifications::send_all))
        .route("/notifications/{id}/send", post(notifications::send))
        .route("/changes", get(changes::show))
        .route("/audit", get(audit::show))
        .route("/account", get(account::show))
        .route("/api-docs", get(api_docs::show))
        .route("/login", get(login::show).post(login::sign_in))
        .route("/logout", post(login::sign_out))
        .route("/static/{version}/{file}", get(assets::file))
        .route_layer(from_fn_with_state(Arc::clone(state), page::present))
}

/// True for the paths of the dashboard's pages.
pub(crate) fn is_page(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    matches!(
        first,
        "" | "search"
            | "account"
            | "api-docs"
            | "audit"
            | "changes"
            | "jobs"
            | "jobs.csv"
            | "jobs.ndjson"
            | "batches"
            | "definitions"
            | "schedules"
            | "workers"
            | "notifications"
            | "pause"
            | "resume"
            | "logs"
            | "login"
            | "logout"
            | "static"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_a_page() {
        let routes =
            include_str!("mod.rs").split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let routes: Vec<&str> = routes.filter(|path| path.starts_with('/')).collect();
        assert!(routes.len() > 20, "{routes:?}");
        for path in routes {
            assert!(is_page(path), "{path}");
        }
        assert!(!is_page("/api/jobs") && !is_page("/metrics"));
    }
}
