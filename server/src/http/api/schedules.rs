//! Schedules: when they fire next, what became of their slots, and pausing them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use protocol::{JobId, Timestamp};
use scheduler::definition::Definition;
use scheduler::schedule::{Schedule, ScheduleId};
use scheduler::schedules::{FireRow, PauseTarget, ScheduleRow};
use scheduler::step::{Answer, Rejection};

use crate::auth::audit::note;
use crate::clock;
use crate::excerpt::excerpt;
use crate::http::api::definitions::find;
use crate::http::api::jobs::unexpected_answer;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::path::{Name, NameAndVerb};
use crate::http::request::query::Query;
use crate::http::request::{body, cursor};
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

/// True if all schedules are paused.
///
/// # Errors
/// Those of a read.
pub(crate) async fn is_everything_paused(state: &AppState) -> Result<bool, Problem> {
    let kept = state.read(|archive| archive.schedules()).await?;
    Ok(kept.paused.iter().any(|(target, _)| *target == PauseTarget::Everything))
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

/// `POST /api/definitions/{name}/pause` and `/resume`, with `?schedule=` for one of its schedules.
pub(crate) async fn pause_definition(
    State(state): State<Arc<AppState>>,
    NameAndVerb(name, verb): NameAndVerb,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (parts, body) = request.into_parts();
    let paused = paused(&verb)?;
    let mut query = Query::of(&parts.uri)?;
    let schedule = query.text("schedule")?;
    query.finish()?;
    body::none(body).await?;
    let target = match schedule {
        Some(id) => PauseTarget::Schedule(name.into(), ScheduleId::named(&id)),
        None => {
            // A name that nobody knows gets names that are near, unless it is paused and gone from the file.
            if paused {
                find(&state.services.catalogue.current(), &name)?;
            }
            PauseTarget::Definition(name.into())
        }
    };
    perform(&state, target, paused).await
}

/// `POST /api/schedules/pause` and `/resume`.
pub(crate) async fn pause_all(
    State(state): State<Arc<AppState>>,
    Name(verb): Name,
    request: Request,
) -> Result<StatusCode, Problem> {
    let paused = paused(&verb)?;
    body::none(request.into_body()).await?;
    perform(&state, PauseTarget::Everything, paused).await
}

fn paused(verb: &str) -> Result<bool, Problem> {
    match verb {
        "pause" => Ok(true),
        "resume" => Ok(false),
        other => {
            let detail = format!("\"{}\" is nothing that can be done with schedules", excerpt(other));
            Err(Problem::new(Code::NotFound, detail).hint("the verbs are pause and resume"))
        }
    }
}

async fn perform(state: &AppState, target: PauseTarget, paused: bool) -> Result<StatusCode, Problem> {
    note::object(match &target {
        PauseTarget::Everything => "all schedules".to_owned(),
        PauseTarget::Definition(name) => format!("schedules of {name}"),
        PauseTarget::Schedule(name, id) => format!("schedule {id} of {name}", id = id.as_str()),
    });
    match state.services.engine.pause(target.clone(), paused).await? {
        Answer::Done => Ok(StatusCode::NO_CONTENT),
        Answer::Rejected(Rejection::UnknownSchedule) => Err(no_schedule(&target)),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(unexpected_answer(&answer)),
    }
}

/// Says that there is nothing that could be paused or resumed.
fn no_schedule(target: &PauseTarget) -> Problem {
    let detail = match target {
        PauseTarget::Everything => "jobs.yaml has no schedule".to_owned(),
        PauseTarget::Definition(name) => {
            format!(
                "\"{}\" has no schedule; only requests make its jobs, and these are never paused",
                excerpt(name)
            )
        }
        PauseTarget::Schedule(name, id) => {
            format!("\"{}\" has no schedule \"{}\"", excerpt(name), excerpt(id.as_str()))
        }
    };
    Problem::new(Code::UnknownSchedule, detail).hint("GET /api/schedules lists all schedules")
}

/// The stored state of schedules, to be looked up.
struct Kept<'k> {
    rows: BTreeMap<(&'k str, &'k str), &'k ScheduleRow>,
    paused: BTreeMap<&'k PauseTarget, Timestamp>,
    now: Timestamp,
    next: u64,
}

impl<'k> Kept<'k> {
    fn new(state: &'k ScheduleState, next: u64) -> Self {
        let key = |row: &'k ScheduleRow| ((&*row.definition, row.schedule.as_str()), row);
        let paused = state.paused.iter().map(|(target, since)| (target, *since)).collect();
        Self { rows: state.rows.iter().map(key).collect(), paused, now: clock::now().utc, next }
    }

    fn schedules_of(&self, definition: &Definition) -> impl Iterator<Item = shapes::Schedule> {
        definition.timetable.schedules.iter().map(|schedule| self.schedule(definition, schedule))
    }

    fn schedule(&self, definition: &Definition, schedule: &Schedule) -> shapes::Schedule {
        let name = definition.name.as_str();
        let row = self.rows.get(&(name, schedule.id.as_str()));
        let paused_since = self.paused_since(name, &schedule.id);
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

    fn paused_since(&self, name: &str, id: &ScheduleId) -> Option<Timestamp> {
        if self.paused.is_empty() {
            return None;
        }
        let targets = [
            PauseTarget::Everything,
            PauseTarget::Definition(name.into()),
            PauseTarget::Schedule(name.into(), id.clone()),
        ];
        targets.iter().filter_map(|target| self.paused.get(target)).min().copied()
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
