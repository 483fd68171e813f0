//! Schedules: when they fire next, and what became of their slots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;
use scheduler::definition::Definition;
use tokio::time::Instant;

use crate::excerpt::excerpt;
use crate::http::api::schedule_choice;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::schedule::{NextSlots, StoredSchedules, fire};
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::definition::find;
use crate::http::request::paging::Page;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{Archive, FailedFires, FireFilter, FireRecord, SlotEnd};

/// How many rows of the ledger a page has if nothing else is asked for, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: u64 = 500;

/// A search for failed slots ends with a cursor after this time.
const FAILED_TIME_MAX: Duration = Duration::from_secs(2);

/// How many next slots of a schedule are shown if nothing else is asked for, and at most.
const NEXT_SHOWN: u64 = 5;
const NEXT_MAX: u64 = 100;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Vec<shapes::Schedule>>, Problem> {
    all(&state, Query::of(&uri)?).await.map(Json)
}

/// The schedules that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_limit`, `unknown_job`, and those of a read.
pub(crate) async fn all(state: &AppState, mut query: Query) -> Result<Vec<shapes::Schedule>, Problem> {
    let name = query.text("name")?;
    let next = query.number("next")?.unwrap_or(NEXT_SHOWN);
    let from = query.moment("from")?;
    query.finish()?;
    if !(1..=NEXT_MAX).contains(&next) {
        let detail = format!("{next} is not within 1 to {NEXT_MAX}");
        return Err(Problem::new(ProblemCode::InvalidLimit, detail).field("?next"));
    }
    let definitions = state.services.catalogue.current();
    if let Some(name) = &name {
        find(&definitions, name)?;
    }
    let slots = NextSlots { count: next, from };
    selected(state, move |definition| name.as_ref().is_none_or(|name| definition == name), slots).await
}

/// The schedules of some definitions, each with these next slots.
///
/// # Errors
/// Those of a read.
pub(crate) async fn selected(
    state: &AppState,
    is_wanted: impl Fn(&str) -> bool + Send + 'static,
    next: NextSlots,
) -> Result<Vec<shapes::Schedule>, Problem> {
    let kept = state.read(|archive| archive.schedules()).await?;
    let definitions = state.services.catalogue.current();
    // The next slots of very many schedules take a while.
    let compute = move || {
        let kept = StoredSchedules::new(&kept, next);
        let wanted = definitions.iter().map(|entry| &entry.definition);
        let wanted = wanted.filter(|definition| is_wanted(&definition.name));
        Ok(wanted.flat_map(|definition| kept.schedules_of(definition)).collect())
    };
    state.block(compute).await
}

/// The schedules of one definition.
pub(crate) async fn of_definition(
    state: &AppState,
    definition: &Definition,
) -> Result<Vec<shapes::Schedule>, Problem> {
    if definition.timetable.schedules.is_empty() {
        return Ok(Vec::new());
    }
    let kept = state.read(|archive| archive.schedules()).await?;
    Ok(StoredSchedules::new(&kept, NextSlots::unfired(NEXT_SHOWN)).schedules_of(definition).collect())
}

pub(crate) async fn fires(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    uri: Uri,
) -> Result<Response, Problem> {
    let page = ledger(&state, &name, Query::of(&uri)?).await?;
    Ok(page.into_answer(&state, &format!("definitions/{name}/fires"), &uri))
}

/// Reads the page of the ledger that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_limit`, `invalid_cursor`, `unknown_job`, `unknown_schedule`, and those of a read.
pub(crate) async fn ledger(
    state: &AppState,
    name: &str,
    mut query: Query,
) -> Result<Page<shapes::Fire>, Problem> {
    let limit = match query.number("limit")? {
        None => LIMIT,
        Some(limit) if (1..=LIMIT_MAX).contains(&limit) => usize::try_from(limit).unwrap_or(LIMIT),
        Some(limit) => {
            let detail = format!("{limit} is not within 1 to {LIMIT_MAX}");
            return Err(Problem::new(ProblemCode::InvalidLimit, detail).field("?limit"));
        }
    };
    let filter = FireFilter {
        before: query.text("cursor")?.map(|text| cursor::read(&text)).transpose()?.map(|last| last.0),
        schedule: query.text("schedule")?,
        since: query.since("since")?,
        until: query.until("until")?,
    };
    let failed = query.switch("failed")?;
    query.finish()?;
    let (asked, wanted) = (name.to_owned(), filter.clone());
    // One more than is shown tells whether there is a next page.
    let FailedFires { mut rows, searched } = match failed {
        true => find_failed(state, &asked, wanted, limit + 1).await?,
        false => {
            let rows = state.read(move |archive| archive.fires(&asked, &wanted, limit + 1)).await?;
            FailedFires { rows, searched: None }
        }
    };
    // Rows of what has left jobs.yaml are kept, so a name is refused only where it has none.
    if rows.is_empty() && filter.before.is_none() {
        check_has_fires(state, name, filter.schedule).await?;
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.id).or(searched);
    let next = next.map(|id| cursor::write(JobId(id)));
    let made: Vec<JobId> = rows.iter().filter_map(made_job).collect();
    let asked = made.clone();
    let ends = state.read(move |archive| archive.slot_ends(&asked)).await?;
    let ends: HashMap<JobId, SlotEnd> = made.into_iter().zip(ends).collect();
    let definitions = state.services.catalogue.current();
    let definition = definitions.find(name).map(|entry| &*entry.definition);
    let shown = |record: &FireRecord| {
        let end = made_job(record).and_then(|job| ends.get(&job));
        fire(&record.row, end, definition)
    };
    Ok(Page { entries: rows.iter().map(shown).collect(), next })
}

/// The job that a slot became, and not one that was in its way.
fn made_job(record: &FireRecord) -> Option<JobId> {
    record.row.verdict.job().filter(|_| record.row.verdict.reason().is_none())
}

/// The newest slots whose last job is an unresolved failure, at most `limit`: fewer if the time is up.
///
/// # Errors
/// Those of a read.
async fn find_failed(
    state: &AppState,
    name: &str,
    mut filter: FireFilter,
    limit: usize,
) -> Result<FailedFires, Problem> {
    let until = Instant::now() + FAILED_TIME_MAX;
    let name: Arc<str> = name.into();
    let mut found = FailedFires::default();
    loop {
        let (asked, wanted, left) = (Arc::clone(&name), filter.clone(), limit - found.rows.len());
        let slice = state.read(move |archive| archive.failed_fires(&asked, &wanted, left)).await?;
        found.rows.extend(slice.rows);
        found.searched = slice.searched;
        filter.before = slice.searched;
        let is_full = found.rows.len() >= limit;
        if is_full || filter.before.is_none() || Instant::now() >= until {
            return Ok(found);
        }
    }
}

/// Refuses names that neither jobs.yaml nor the ledger has at any time.
///
/// # Errors
/// `unknown_job`, `unknown_schedule`, and those of a read.
async fn check_has_fires(state: &AppState, name: &str, schedule: Option<String>) -> Result<(), Problem> {
    let definitions = state.services.catalogue.current();
    let refusal = match (find(&definitions, name), &schedule) {
        (Ok(_), None) => return Ok(()),
        (Ok(entry), Some(id)) => schedule_choice::find(&entry.definition, Some(id)).err(),
        (Err(unknown), _) => Some(unknown),
    };
    let Some(refusal) = refusal else { return Ok(()) };
    let (asked, of_schedule) = (name.to_owned(), FireFilter { schedule, ..FireFilter::default() });
    let read = move |archive: &dyn Archive| {
        let is_kept = |filter| archive.fires(&asked, filter, 1).map(|rows| !rows.is_empty());
        Ok((is_kept(&of_schedule)?, is_kept(&FireFilter::default())?))
    };
    match state.read(read).await? {
        (true, _) => Ok(()),
        (false, true) if refusal.code() == ProblemCode::UnknownJob => {
            let detail = format!("no slot of \"{}\" has been of this schedule", excerpt(name));
            Err(Problem::new(ProblemCode::UnknownSchedule, detail).field("?schedule"))
        }
        _ => Err(refusal),
    }
}
