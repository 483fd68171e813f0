//! `GET /api/definitions/{name}/statistics`: how the latest jobs of a definition ended, and how long they waited and ran.
//!
//! It reads lists of ended jobs by definition, which the store answers by blocks that have any of them, the newest first. Three limits bound a
//! request: jobs, the time since which they ended, and the time that it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use protocol::Timestamp;
use scheduler::job::State as JobState;

use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Percentiles, Statistics, Time};
use crate::http::request::definition::find;
use crate::http::request::path::Name;
use crate::http::request::query::{Query, invalid_query};
use crate::http::state::AppState;
use crate::store::{Archive, JobFilter, JobRow, ReadError, RunOnRole};

/// `GET /api/definitions/{name}/statistics`
pub(crate) async fn of_definition(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    uri: Uri,
) -> Result<Json<Statistics>, Problem> {
    let mut query = Query::of(&uri)?;
    let jobs_max = match query.number("jobs")? {
        None => JOBS_MAX,
        Some(jobs) => usize::try_from(jobs)
            .ok()
            .filter(|jobs| (1..=JOBS_MAX).contains(jobs))
            .ok_or_else(|| invalid_query("jobs", &format!("it is a number of jobs, 1 to {JOBS_MAX}")))?,
    };
    let since = query.since("since")?;
    query.finish()?;
    find(&state.services.catalogue.current(), &name)?;
    let archive = Arc::clone(&state.services.archive);
    let of = name.clone();
    let read = move || Ok(ended_jobs(archive.as_ref(), of, since, jobs_max, Instant::now() + TIME_MAX)?);
    let (rows, complete) = state.search(read).await?;
    let newest = |is_meant: fn(JobState) -> bool| {
        let row = rows.iter().filter(|row| is_meant(row.state)).max_by_key(|row| (row.ended_at, row.job));
        row.map(|row| state.presenter().job(row.clone()))
    };
    let (last_success, last_failure) = (newest(is_success), newest(is_failure));
    Ok(Json(Statistics { name, complete, last_success, last_failure, ..count(&rows) }))
}

/// The ended jobs of a definition, the newest first, and whether there are no others.
fn ended_jobs(
    archive: &dyn Archive,
    name: String,
    since: Option<Timestamp>,
    jobs_max: usize,
    deadline: Instant,
) -> Result<(Vec<JobRow>, bool), ReadError> {
    let mut filter = JobFilter {
        name: Some(name),
        // Not by the final states: their indexes have the failed jobs of all definitions.
        ended_since: Some(since.unwrap_or(Timestamp(i64::MIN))),
        limit: ROWS,
        ..JobFilter::default()
    };
    let mut found = Vec::new();
    loop {
        let page = archive.jobs(&filter)?;
        let is_last = page.len() < ROWS;
        filter.before = page.last().map(|row| row.job).or(filter.before);
        // A parent ran nowhere: its members did.
        found.extend(page.into_iter().filter(|row| !matches!(row.run_on_role, RunOnRole::Parent(_))));
        if found.len() > jobs_max {
            found.truncate(jobs_max);
            return Ok((found, false));
        }
        if is_last || Instant::now() >= deadline {
            return Ok((found, is_last));
        }
    }
}

/// The statistics of these jobs, without the jobs themselves.
fn count(rows: &[JobRow]) -> Statistics {
    let mut counted = Statistics { jobs: rows.len() as u64, ..Statistics::default() };
    let (mut runs, mut waits) = (Vec::new(), Vec::new());
    for row in rows {
        *counted.states.entry(row.state.name().to_owned()).or_default() += 1;
        counted.retries += u64::from(row.attempts.0.saturating_sub(1));
        counted.retried_jobs += u64::from(row.attempts.0 > 1);
        let Some((attempt, started_at)) = row.attempt.as_ref().and_then(|it| Some((it, it.started_at?)))
        else {
            continue;
        };
        waits.push(milliseconds(started_at.since(row.due_at)));
        runs.extend(attempt.ended_at.map(|ended_at| milliseconds(ended_at.since(started_at))));
    }
    let ends = || rows.iter().filter_map(|row| row.ended_at);
    (counted.first_end, counted.last_end) = (ends().min().map(Time), ends().max().map(Time));
    let number =
        |is_meant: fn(JobState) -> bool| rows.iter().filter(|row| is_meant(row.state)).count() as f64;
    let (succeeded, failed) = (number(is_success), number(is_failure));
    counted.success_rate = (succeeded + failed > 0.0).then(|| succeeded / (succeeded + failed));
    (counted.run, counted.wait) = (Percentiles::of(runs), Percentiles::of(waits));
    counted
}

fn is_success(state: JobState) -> bool {
    state == JobState::Succeeded
}

fn is_failure(state: JobState) -> bool {
    matches!(state, JobState::Failed | JobState::Lost)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The most jobs that one request counts.
const JOBS_MAX: usize = 1_000;

/// Jobs read from the store at a time.
const ROWS: usize = 200;

/// One request reads about this long at most: the jobs of a rare definition may lie far apart.
const TIME_MAX: Duration = Duration::from_secs(2);
