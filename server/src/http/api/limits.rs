//! `GET /api/limits`: the limits that jobs need now, with what is in use and what waits. Those of one definition are part of
//! `GET /api/definitions/{name}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use scheduler::definition::Definition;
use scheduler::limits::{LimitFacts, LimitSelection};

use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::query::Query;
use crate::http::state::AppState;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Vec<shapes::Limit>>, Problem> {
    let mut query = Query::of(&uri)?;
    let name = query.text("name")?;
    query.finish()?;
    let selection = name.map_or(LimitSelection::All, |name| LimitSelection::Named(name.into()));
    let found = state.services.engine.limits(selection).await?;
    let server = found.running_max.map(|max| shapes::Limit {
        kind: "server".into(),
        name: "max_running".into(),
        limit: u32::try_from(max).ok(),
        in_use: found.running as u64,
        waiting: found.queued as u64,
        ..shapes::Limit::default()
    });
    Ok(Json(server.into_iter().chain(found.limits.iter().map(limit)).collect()))
}

/// The limits that jobs of a definition need now, its group's included. Definitions without limits do not ask the engine.
pub(super) async fn of_definition(
    state: &AppState,
    definition: &Definition,
) -> Result<Vec<shapes::Limit>, Problem> {
    if !definition.limits.gate_starts() {
        return Ok(Vec::new());
    }
    let group = definition.limits.concurrency.as_ref().and_then(|rule| rule.group.as_deref());
    let selection =
        LimitSelection::OfDefinition { name: definition.name.as_str().into(), group: group.map(Into::into) };
    let found = state.services.engine.limits(selection).await?;
    Ok(found.limits.iter().map(limit).collect())
}

/// The JSON of a limit.
pub(crate) fn limit(facts: &LimitFacts) -> shapes::Limit {
    shapes::Limit {
        kind: facts.id.kind.name().into(),
        name: facts.id.name.to_string(),
        key: facts.id.key.as_ref().map(ToString::to_string),
        limit: facts.permits,
        interval_ms: facts.rate.map(|rate| rate.interval.div_ceil(1_000_000)),
        burst: facts.rate.map(|rate| rate.burst),
        in_use: facts.in_use,
        waiting: facts.waiting,
        holders: facts.holders.iter().map(|job| job.0).collect(),
        next_start: facts.next_start.map(Time),
    }
}
