//! `/`: what needs attention, what runs, and how the last day went.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::attention::{self, Attention};
use super::chart::{self, Bar, Hour};
use super::format;
use super::jobs::{self, ENDED_STATES, Row};
use super::last_day;
use super::page::{Frame, render};
use super::schedules::ScheduleRow;
use crate::clock;
use crate::http::api::{schedules, workers};
use crate::http::middleware::problem::Problem;
use crate::http::present::schedule::NextSlots;
use crate::http::state::AppState;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    attention: Vec<Attention>,
    /// Failures that nobody has dealt with.
    unresolved: u64,
    running: Vec<Row>,
    last: Vec<Row>,
    next: Vec<ScheduleRow>,
    waiting: u64,
    /// How long the oldest job has waited; empty if none waits.
    oldest_wait: String,
    /// Waiting jobs by reason, the most first.
    reasons: Vec<(&'static str, u64)>,
    running_count: usize,
    connected: usize,
    slots: u64,
    busy: u64,
    /// The last 24 hours; `None` while they are being counted.
    hours: Option<Vec<Hour>>,
    bars: Vec<Bar>,
    succeeded: u64,
    failed: u64,
    is_empty: bool,
    /// A definition for the example of a first job; none if none is defined.
    example_definition: Option<String>,
}

/// Rows of each table.
const ROWS: usize = 8;

/// `GET /`
pub(crate) async fn show(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    let workers = workers::live(&state);
    let limit = ROWS.to_string();
    let running = jobs::first_page(&state, &[("state", "running"), ("limit", limit.as_str())]).await?;
    let last = jobs::first_page(&state, &[("state", ENDED_STATES), ("limit", limit.as_str())]).await?;
    let mut schedules = schedules::selected(&state, |_| true, NextSlots::unfired(1)).await?;
    let totals = state.read(|archive| archive.unresolved()).await?;
    let attention = attention::list(&state, &workers, &totals).await?;
    schedules.retain(|schedule| schedule.paused_since.is_none() && !schedule.next.is_empty());
    schedules.sort_by(|a, b| a.next.first().cmp(&b.next.first()));
    schedules.truncate(ROWS);
    let snapshot = state.services.engine.snapshot();
    let hours = last_day::hours(&state).await;
    let reasons = attention::by_reason(&snapshot);
    let oldest = state.services.metrics.oldest_due().filter(|_| !reasons.is_empty());
    let connected = workers.iter().filter(|worker| worker.connected);
    render(&OverviewPage {
        frame: Frame::new(&state, "overview", "Overview"),
        attention,
        unresolved: totals.values().sum(),
        waiting: reasons.iter().map(|(_, count)| count).sum(),
        oldest_wait: oldest.map(|due| format::span(clock::now().utc.since(due))).unwrap_or_default(),
        reasons,
        running_count: state.services.metrics.running(),
        connected: connected.clone().count(),
        slots: connected.clone().map(|worker| u64::from(worker.slots)).sum(),
        busy: connected.map(|worker| u64::from(worker.busy)).sum(),
        bars: hours.as_deref().map(chart::hours).unwrap_or_default(),
        succeeded: hours.iter().flatten().map(|hour| hour.succeeded).sum(),
        failed: hours.iter().flatten().map(|hour| hour.failed).sum(),
        example_definition: state
            .services
            .catalogue
            .current()
            .iter()
            .next()
            .map(|entry| entry.definition.name.clone()),
        is_empty: running.is_empty() && last.is_empty() && snapshot.live_jobs == 0,
        hours,
        running: running.into_iter().map(Row::of).collect(),
        last: last.into_iter().map(Row::of).collect(),
        next: schedules.into_iter().map(ScheduleRow::of).collect(),
    })
}
