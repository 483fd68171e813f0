//! `/`: what needs attention, what runs, and how the last day went.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::Timestamp;
use scheduler::pauses::PauseTarget;
use scheduler::snapshot::Snapshot;

use super::chart::{self, Bar, Hour};
use super::jobs::Row;
use super::page::{Frame, render};
use super::schedules::ScheduleRow;
use super::workers::WorkerRow;
use crate::clock;
use crate::http::api::{health, jobs, notifications, schedules, workers};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Job, Pause, Worker};
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::rfc3339::Time;
use crate::store::HourlyEnds;

/// Something that a person should look at.
struct Attention {
    tone: &'static str,
    text: String,
    /// The page behind it, below the base path.
    link: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    attention: Vec<Attention>,
    running: Vec<Row>,
    last: Vec<Row>,
    next: Vec<ScheduleRow>,
    waiting: u64,
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
/// Ends that are looked through for names that need attention.
const ENDS: &str = "100";
/// Failing targets of notifications that are named; the page behind the link has all of them.
const FAILING_TARGETS: usize = 5;
/// Pauses that are named.
const PAUSES: usize = 10;
const HOURS: i64 = 24;
const HOUR_MS: i64 = 3_600_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// `GET /`
pub(crate) async fn show(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    let workers = workers::list(State(Arc::clone(&state)), Uri::from_static("/")).await?.0;
    let running = list(&state, &[("state", "running"), ("limit", ROWS)]).await?;
    let ended = "succeeded,failed,cancelled,expired,lost";
    let last = list(&state, &[("state", ended), ("limit", ROWS)]).await?;
    let mut schedules = schedules::all(&state, Query::new(Vec::new())).await?;
    let attention = attention(&state, &workers).await?;
    schedules.retain(|schedule| schedule.paused_since.is_none() && !schedule.next.is_empty());
    schedules.sort_by(|a, b| a.next.first().cmp(&b.next.first()));
    schedules.truncate(8);
    let snapshot = state.services.engine.snapshot();
    let hours = state.activity.hours(&state).await;
    let connected = workers.iter().filter(|worker| worker.connected);
    render(&OverviewPage {
        frame: Frame::new(&state, "overview", "Overview"),
        attention,
        waiting: snapshot.waiting.iter().map(|waiting| waiting.count).sum(),
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

async fn list(state: &AppState, pairs: &[(&str, &str)]) -> Result<Vec<Job>, Problem> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Ok(jobs::page(state, Query::new(pairs.collect())).await?.jobs)
}

/// The most urgent first: the server itself, workers, jobs that wait for a decision, definitions that fail, and what is paused.
async fn attention(state: &AppState, workers: &[Worker]) -> Result<Vec<Attention>, Problem> {
    let entry = |tone, text: String, link: &str| Attention { tone, text, link: link.to_owned() };
    let mut all: Vec<Attention> =
        health::warnings(state).into_iter().map(|text| entry("bad", text, "")).collect();
    for worker in workers {
        let link = format!("/workers/{}", worker.id);
        let row = WorkerRow::of(worker.clone());
        if matches!(row.tone, "bad" | "warn") {
            all.push(entry(row.tone, format!("worker {} is {}", worker.name, worker.state), &link));
        }
        for away in row.away {
            all.push(entry("warn", format!("worker {}: {away}", worker.name), &link));
        }
    }
    for message in notifications::failing(state).await?.into_iter().take(FAILING_TARGETS) {
        let error = message.error.unwrap_or_default();
        let text = format!("notifications to {} {} fail: {error}", message.kind, message.host);
        all.push(entry("bad", text, "/notifications"));
    }
    let quarantined = list(state, &[("state", "quarantined"), ("limit", ENDS)]).await?.len();
    if quarantined > 0 {
        let text = match quarantined {
            1 => "1 job is quarantined: it waits for a decision".to_owned(),
            100.. => format!("{quarantined} or more jobs are quarantined: each waits for a decision"),
            _ => format!("{quarantined} jobs are quarantined: each waits for a decision"),
        };
        all.push(entry("warn", text, "/jobs?state=quarantined"));
    }
    let since = Time(Timestamp(clock::now().utc.0 - HOURS * HOUR_MS)).to_string();
    let bad = [("state", "failed,lost,expired"), ("ended_since", since.as_str()), ("limit", ENDS)];
    let mut by_name: BTreeMap<String, u32> = BTreeMap::new();
    for job in list(state, &bad).await? {
        *by_name.entry(job.name).or_default() += 1;
    }
    for (name, count) in by_name {
        let text = format!("{name}: {} ended badly within 24 hours", counted(count));
        all.push(entry("bad", text, &format!("/jobs?name={name}&state=failed%2Clost%2Cexpired")));
    }
    all.extend(paused(&state.services.engine.snapshot()).map(|(text, link)| entry("warn", text, &link)));
    Ok(all)
}

/// A line for each pause, with the page where it can be ended.
fn paused(snapshot: &Snapshot) -> impl Iterator<Item = (String, String)> {
    let line = |(target, _): (&PauseTarget, Timestamp)| {
        let link = match target {
            PauseTarget::Server | PauseTarget::Group(_) => "/definitions".to_owned(),
            PauseTarget::Schedules => "/schedules".to_owned(),
            PauseTarget::Definition(name) | PauseTarget::Schedule(name, _) => format!("/definitions/{name}"),
        };
        let are = if *target == PauseTarget::Schedules { "are" } else { "is" };
        (format!("{} {are} paused", Pause::of(target, None).words()), link)
    };
    let more = snapshot.pauses.iter().count().saturating_sub(PAUSES);
    let rest = (more > 0).then(|| (format!("{more} more pauses"), "/definitions".to_owned()));
    snapshot.pauses.iter().take(PAUSES).map(line).chain(rest)
}

fn counted(count: u32) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
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
