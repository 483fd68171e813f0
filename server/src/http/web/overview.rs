//! `/`: what needs attention, what runs, and how the last day went.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::Timestamp;

use super::attention::{self, Attention};
use super::chart::{self, Bar, Hour};
use super::format;
use super::jobs::Row;
use super::page::{Frame, render};
use super::schedules::ScheduleRow;
use crate::clock;
use crate::http::api::{jobs, schedules, workers};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::Job;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::rfc3339::Time;
use crate::store::HourlyEnds;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    attention: Vec<Attention>,
    running: Vec<Row>,
    last: Vec<Row>,
    next: Vec<ScheduleRow>,
    waiting: u64,
    /// How long the oldest job has waited; empty if none waits.
    oldest_wait: String,
    /// Waiting jobs by reason, the most first.
    reasons: Vec<(&'static str, u64)>,
    running_count: u64,
    connected: usize,
    slots: u64,
    busy: u64,
    /// The last 24 hours; `None` while they are being counted.
    hours: Option<Vec<Hour>>,
    bars: Vec<Bar>,
    succeeded: u64,
    failed: u64,
    is_empty: bool,
    /// A definition for the first job; none if there are none.
    first: Option<String>,
}

/// Rows of each table.
const ROWS: &str = "8";
pub(super) const HOURS: i64 = 24;
pub(super) const HOUR_MS: i64 = 3_600_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// `GET /`
pub(crate) async fn show(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    let workers = workers::list(State(Arc::clone(&state)), Uri::from_static("/")).await?.0;
    let running = list(&state, &[("state", "running"), ("limit", ROWS)]).await?;
    let ended = "succeeded,failed,cancelled,expired,lost";
    let last = list(&state, &[("state", ended), ("limit", ROWS)]).await?;
    let mut schedules = schedules::selected(&state, |_| true, 1).await?;
    let attention = attention::list(&state, &workers).await?;
    schedules.retain(|schedule| schedule.paused_since.is_none() && !schedule.next.is_empty());
    schedules.sort_by(|a, b| a.next.first().cmp(&b.next.first()));
    schedules.truncate(8);
    let snapshot = state.services.engine.snapshot();
    let hours = state.activity.hours(&state).await;
    let reasons = attention::by_reason(&snapshot);
    let oldest = state.services.metrics.oldest_due().filter(|_| !reasons.is_empty());
    let connected = workers.iter().filter(|worker| worker.connected);
    render(&OverviewPage {
        frame: Frame::new(&state, "overview", "Overview"),
        attention,
        waiting: reasons.iter().map(|(_, count)| count).sum(),
        oldest_wait: oldest.map(|due| format::span(clock::now().utc.since(due))).unwrap_or_default(),
        reasons,
        running_count: workers.iter().map(|worker| u64::from(worker.busy)).sum(),
        connected: connected.clone().count(),
        slots: connected.clone().map(|worker| u64::from(worker.slots)).sum(),
        busy: connected.map(|worker| u64::from(worker.busy)).sum(),
        bars: hours.as_deref().map(chart::hours).unwrap_or_default(),
        succeeded: hours.iter().flatten().map(|hour| hour.succeeded).sum(),
        failed: hours.iter().flatten().map(|hour| hour.failed).sum(),
        first: state.services.catalogue.current().iter().next().map(|entry| entry.definition.name.clone()),
        is_empty: running.is_empty() && last.is_empty() && snapshot.live_jobs == 0,
        hours,
        running: running.into_iter().map(Row::of).collect(),
        last: last.into_iter().map(Row::of).collect(),
        next: schedules.into_iter().map(ScheduleRow::of).collect(),
    })
}

/// The first page of a list of jobs.
pub(super) async fn list(state: &AppState, pairs: &[(&str, &str)]) -> Result<Vec<Job>, Problem> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Ok(jobs::page(state, Query::new(pairs.collect())).await?.jobs)
}

/// The ends of the last 24 hours, counted now and then: counting reads every job that ended.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    counted: Mutex<Option<Counted>>,
    counting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Counted {
    at: Instant,
    hours: Arc<Vec<HourlyEnds>>,
}

/// A count is good for this long.
const FRESH: Duration = Duration::from_secs(20);
/// A page waits this long for the first count.
const COUNT_TIMEOUT: Duration = Duration::from_millis(40);

impl Activity {
    /// The last count, which may be some seconds old; a new one is begun behind the page's back. `None` if there was none yet.
    async fn hours(&self, state: &Arc<AppState>) -> Option<Vec<Hour>> {
        let counted = self.last();
        if counted.as_ref().is_none_or(|counted| counted.at.elapsed() > FRESH) {
            let counter = tokio::spawn(count(Arc::clone(state)));
            if counted.is_none() {
                // Without a count after this time, the page says that it is being counted.
                let _ = tokio::time::timeout(COUNT_TIMEOUT, counter).await;
            }
        }
        self.last().map(|counted| by_hour(&counted.hours, clock::now().utc))
    }

    fn last(&self) -> Option<Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn count(state: Arc<AppState>) {
    let Ok(_turn) = state.activity.counting.try_lock() else { return };
    let since = Timestamp(clock::now().utc.0 - i64::try_from(DAY.as_millis()).unwrap_or(0));
    match state.read(move |archive| archive.ends_by_hour(since)).await {
        Ok(hours) => {
            let counted = Counted { at: Instant::now(), hours: Arc::new(hours) };
            *state.activity.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
        }
        Err(problem) => tracing::debug!(code = problem.code().name(), "ends were not counted"),
    }
}

fn by_hour(ends: &[HourlyEnds], now: Timestamp) -> Vec<Hour> {
    let last = now.0.div_euclid(HOUR_MS);
    let hour = |number: i64| {
        let of_hour = || ends.iter().filter(|ends| ends.hour == number);
        let label = Time(Timestamp(number * HOUR_MS)).to_string();
        Hour {
            label: label.get(11..16).unwrap_or_default().to_owned(),
            from: label,
            until: Time(Timestamp((number + 1) * HOUR_MS)).to_string(),
            succeeded: of_hour().map(|ends| ends.succeeded).sum(),
            failed: of_hour().map(|ends| ends.failed).sum(),
        }
    };
    (last - HOURS + 1..=last).map(hour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_24_hours_with_the_present_one_last() {
        let ends = [HourlyEnds { hour: 100, succeeded: 5, failed: 2 }];
        let hours = by_hour(&ends, Timestamp(100 * HOUR_MS + 5));
        assert_eq!(hours.len(), 24);
        assert_eq!((hours[23].succeeded, hours[23].failed, hours[23].label.as_str()), (5, 2, "04:00"));
        assert_eq!(hours[22].succeeded, 0);
    }
}
