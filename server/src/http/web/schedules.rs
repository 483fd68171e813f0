//! `/schedules`: all schedules, the next 24 hours, and the fire ledger of one definition.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use scheduler::pauses::PauseTarget;

use super::format::{self, Moment};
use super::page::{Frame, render};
use crate::clock;
use crate::http::api::schedules;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{Fire, Schedule};
use crate::http::request::query::Query;
use crate::http::state::AppState;

/// A schedule as a row.
pub(crate) struct ScheduleRow {
    pub(crate) schedule: Schedule,
    pub(crate) tone: &'static str,
    pub(crate) next: Option<Moment>,
    pub(crate) last: Option<Moment>,
    pub(crate) lateness: String,
}

impl ScheduleRow {
    pub(crate) fn of(schedule: Schedule) -> Self {
        Self {
            tone: format::tone(&schedule.state),
            next: schedule.next.first().copied().map(format::moment),
            last: schedule.last_fire.as_ref().map(|fire| format::moment(fire.slot)),
            lateness: schedule
                .last_fire
                .as_ref()
                .map(|fire| format::span_ms(fire.lateness_ms))
                .unwrap_or_default(),
            schedule,
        }
    }
}

/// A row of the fire ledger.
struct FireRow {
    fire: Fire,
    tone: &'static str,
    from: Moment,
    to: Moment,
    lateness: String,
}

/// A slot within the next 24 hours, as a mark on a line.
struct Mark {
    x: u64,
    title: String,
}

/// The marks of one schedule.
struct Line {
    name: String,
    id: String,
    marks: Vec<Mark>,
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    rows: Vec<ScheduleRow>,
    lines: Vec<Line>,
    /// The definition whose ledger is shown; empty for none.
    name: String,
    fires: Vec<FireRow>,
    older: Option<String>,
    /// All schedules are paused, and the whole server is.
    all_paused: bool,
    server_paused: bool,
}

/// Slots of each schedule that the line of the day shows.
const SLOTS_OF_A_DAY: &str = "100";

/// Schedules on the line of the day, those that fire first.
const LINES_MAX: usize = 20;

/// Width of the line of the day in its own units: one for each minute.
const DAY_MINUTES: u64 = 24 * 60;

/// `GET /schedules?name=&cursor=`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let name = query.text("name")?.unwrap_or_default();
    let cursor = query.text("cursor")?;
    query.finish()?;
    let mut pairs = vec![("next".to_owned(), SLOTS_OF_A_DAY.to_owned())];
    if !name.is_empty() {
        pairs.push(("name".to_owned(), name.clone()));
    }
    let mut all = schedules::all(&state, Query::new(pairs)).await?;
    all.sort_by(|a, b| (a.next.is_empty(), a.next.first()).cmp(&(b.next.is_empty(), b.next.first())));
    let ledger = match name.is_empty() {
        true => schedules::Ledger::default(),
        false => {
            let pairs = cursor.map(|cursor| ("cursor".to_owned(), cursor));
            schedules::ledger(&state, &name, Query::new(pairs.into_iter().collect())).await?
        }
    };
    let pauses = state.services.engine.snapshot().pauses.clone();
    render(&SchedulesPage {
        frame: Frame::new(&state, "schedules", "Schedules"),
        lines: all.iter().take(LINES_MAX).map(line).filter(|line| !line.marks.is_empty()).collect(),
        all_paused: pauses.contains(&PauseTarget::Schedules),
        server_paused: pauses.contains(&PauseTarget::Server),
        rows: all.into_iter().map(ScheduleRow::of).collect(),
        older: ledger.next,
        fires: ledger.fires.into_iter().map(fire_row).collect(),
        name,
    })
}

fn line(schedule: &Schedule) -> Line {
    let now = clock::now().utc;
    let day = Duration::from_secs(24 * 60 * 60);
    let within = schedule.next.iter().filter(|slot| slot.0.since(now) < day);
    let mark = |slot: &crate::http::present::shapes::Time| Mark {
        x: (slot.0.since(now).as_secs() / 60).min(DAY_MINUTES),
        title: format!("{} {}: {slot}", schedule.name, schedule.id),
    };
    Line { name: schedule.name.clone(), id: schedule.id.clone(), marks: within.map(mark).collect() }
}

fn fire_row(fire: Fire) -> FireRow {
    FireRow {
        tone: format::tone(&fire.verdict),
        from: format::moment(fire.from),
        to: format::moment(fire.to),
        lateness: format::span_ms(fire.lateness_ms),
        fire,
    }
}
