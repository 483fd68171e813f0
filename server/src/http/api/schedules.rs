//! Schedules: when they fire next, and what became of their slots.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;
use scheduler::definition::Definition;

use crate::excerpt::excerpt;
use crate::http::api::schedule_choice;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::present::schedule::{NextSlots, StoredSchedules, fire};
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::http::request::definition::find;
use crate::http::request::paging::Page;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::{Archive, FireFilter};

/// How many rows of the ledger a page has if nothing else is asked for, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: u64 = 500;

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
        return Err(Problem::new(Code::InvalidLimit, detail).field("?next"));
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
            return Err(Problem::new(Code::InvalidLimit, detail).field("?limit"));
        }
    };
    let filter = FireFilter {
        before: query.text("cursor")?.map(|text| cursor::read(&text)).transpose()?.map(|last| last.0),
        schedule: query.text("schedule")?,
        since: query.since("since")?,
        until: query.until("until")?,
    };
    query.finish()?;
    let (asked, wanted) = (name.to_owned(), filter.clone());
    // One more than is shown tells whether there is a next page.
    let mut rows = state.read(move |archive| archive.fires(&asked, &wanted, limit + 1)).await?;
    // Rows of what has left jobs.yaml are kept, so a name is refused only where it has none.
    if rows.is_empty() && filter.before.is_none() {
        check_has_fires(state, name, filter.schedule).await?;
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor::write(JobId(row.id)));
    let definitions = state.services.catalogue.current();
    let definition = definitions.find(name).map(|entry| &*entry.definition);
    Ok(Page { entries: rows.iter().map(|record| fire(&record.row, definition)).collect(), next })
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
        (false, true) if refusal.code() == Code::UnknownJob => {
            let detail = format!("no slot of \"{}\" has been of this schedule", excerpt(name));
            Err(Problem::new(Code::UnknownSchedule, detail).field("?schedule"))
        }
        _ => Err(refusal),
    }
}
