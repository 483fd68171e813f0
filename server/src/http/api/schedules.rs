//! Schedules: when they fire next, and what became of their slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::{JobId, Timestamp};
use scheduler::definition::Definition;
use scheduler::pauses::{Pauses, group_of};
use scheduler::schedule::Schedule;
use scheduler::schedules::{FireRow, ScheduleRow};

use crate::clock;
use crate::http::api::definitions::find;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::cursor;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::ScheduleState;

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
    query.finish()?;
    if !(1..=NEXT_MAX).contains(&next) {
        let detail = format!("{next} is not within 1 to {NEXT_MAX}");
        return Err(Problem::new(Code::InvalidLimit, detail).field("?next"));
    }
    let definitions = state.services.catalogue.current();
    if let Some(name) = &name {
        find(&definitions, name)?;
    }
    selected(state, |definition| name.as_ref().is_none_or(|name| definition == name), next).await
}

/// The schedules of some definitions, each with this many next slots.
///
/// # Errors
/// Those of a read.
pub(crate) async fn selected(
    state: &AppState,
    is_wanted: impl Fn(&str) -> bool,
    next: u64,
) -> Result<Vec<shapes::Schedule>, Problem> {
    let kept = state.read(|archive| archive.schedules()).await?;
    let kept = Kept::new(&kept, next);
    let definitions = state.services.catalogue.current();
    let wanted = definitions.iter().map(|entry| &entry.definition);
    let wanted = wanted.filter(|definition| is_wanted(&definition.name));
    Ok(wanted.flat_map(|definition| kept.schedules_of(definition)).collect())
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
    Ok(Kept::new(&kept, NEXT_SHOWN).schedules_of(definition).collect())
}

pub(crate) async fn fires(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut asked = Query::of(&uri)?;
    let limit = asked.number("limit")?;
    let ledger = ledger(&state, &name, Query::of(&uri)?).await?;
    let next = ledger.next.map(|cursor| {
        let (base, limit) = (&state.services.base_path, limit.unwrap_or(LIMIT as u64));
        format!("<{base}/api/definitions/{name}/fires?limit={limit}&cursor={cursor}>; rel=\"next\"")
    });
    let mut response = Json(ledger.fires).into_response();
    if let Some(link) = next.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

/// A page of the fire ledger, the newest rows first.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) fires: Vec<shapes::Fire>,
    /// The `cursor` of the next page, if there is one.
    pub(crate) next: Option<String>,
}

/// Reads the page of the ledger that a query asks for.
///
/// # Errors
/// `invalid_query`, `invalid_limit`, `invalid_cursor`, `unknown_job`, and those of a read.
pub(crate) async fn ledger(state: &AppState, name: &str, mut query: Query) -> Result<Ledger, Problem> {
    let limit = match query.number("limit")? {
        None => LIMIT,
        Some(limit) if (1..=LIMIT_MAX).contains(&limit) => usize::try_from(limit).unwrap_or(LIMIT),
        Some(limit) => {
            let detail = format!("{limit} is not within 1 to {LIMIT_MAX}");
            return Err(Problem::new(Code::InvalidLimit, detail).field("?limit"));
        }
    };
    let before = query.text("cursor")?.map(|text| cursor::read(&text)).transpose()?.map(|last| last.0);
    query.finish()?;
    let asked = name.to_owned();
    // One more than is shown tells whether there is a next page.
    let mut rows = state.read(move |archive| archive.fires(&asked, before, limit + 1)).await?;
    if rows.is_empty() && before.is_none() {
        find(&state.services.catalogue.current(), name)?;
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| cursor::write(JobId(row.id)));
    Ok(Ledger { fires: rows.iter().map(|record| fire(&record.row)).collect(), next })
}

/// The stored state of schedules, to be looked up.
struct Kept<'k> {
    rows: BTreeMap<(&'k str, &'k str), &'k ScheduleRow>,
    pauses: Pauses,
    now: Timestamp,
    next: u64,
}

impl<'k> Kept<'k> {
    fn new(state: &'k ScheduleState, next: u64) -> Self {
        let key = |row: &'k ScheduleRow| ((&*row.definition, row.schedule.as_str()), row);
        let pauses = Pauses::of(state.paused.iter().cloned());
        Self { rows: state.rows.iter().map(key).collect(), pauses, now: clock::now().utc, next }
    }

    fn schedules_of(&self, definition: &Definition) -> impl Iterator<Item = shapes::Schedule> {
        definition.timetable.schedules.iter().map(|schedule| self.schedule(definition, schedule))
    }

    fn schedule(&self, definition: &Definition, schedule: &Schedule) -> shapes::Schedule {
        let name = definition.name.as_str();
        let row = self.rows.get(&(name, schedule.id.as_str()));
        let own_name = Arc::from(name);
        let pauses = self.pauses.of_schedule(&own_name, group_of(definition), &schedule.id);
        let paused_since = pauses.map(|(_, since)| since).min();
        let last_fire = row.and_then(|row| row.last_fire).map(|last| shapes::LastFire {
            slot: Time(last.slot),
            at: Time(last.at),
            job: last.job.0,
            lateness_ms: shapes::millis(last.at.since(schedule.due_at(last.slot))),
        });
        // A slot that fired stays fired, also while the clock stands before it.
        let mut slot = row.map_or(self.now, |row| row.cursor.max(self.now));
        let next = std::iter::from_fn(|| {
            slot = schedule.next_slot_after(slot)?;
            Some(Time(slot))
        });
        let next: Vec<Time> = next.zip(0..self.next).map(|(slot, _)| slot).collect();
        // As the ledger tells it: a pause of a disabled schedule changes nothing.
        let state = match (definition.enabled, paused_since) {
            (false, _) => "disabled",
            (true, Some(_)) => "paused",
            (true, None) if next.is_empty() => "over",
            (true, None) => "active",
        };
        shapes::Schedule {
            name: name.to_owned(),
            id: schedule.id.to_string(),
            rule: schedule.rule.to_string(),
            description: schedule.describe(),
            timezone: schedule.zone.name().to_owned(),
            state: state.into(),
            paused_since: paused_since.map(Time),
            next,
            last_fire,
        }
    }
}

/// The JSON of a row of the ledger.
pub(crate) fn fire(row: &FireRow) -> shapes::Fire {
    shapes::Fire {
        schedule: row.schedule.to_string(),
        from: Time(row.from),
        to: Time(row.to),
        count: row.count.count,
        at_least: !row.count.exact,
        verdict: row.verdict.name().into(),
        reason: row.verdict.reason().map(Into::into),
        job: row.verdict.job().map(|job| job.0),
        decided_at: Time(row.at),
        lateness_ms: shapes::millis(row.at.since(row.to)),
    }
}
