//! `/schedules`: all schedules, the next 24 hours, and the fire ledger of one definition.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use scheduler::pauses::{PauseTarget, Pauses, group_of};
use scheduler::schedule::ScheduleId;

use super::format::{self, Moment};
use super::page::{Frame, render};
use super::page_links::PageLinks;
use crate::clock;
use crate::http::api::schedules;
use crate::http::middleware::problem::Problem;
use crate::http::present::schedule::NextSlots;
use crate::http::present::shapes::{Fire, Pause, Schedule, Time};
use crate::http::request::definition;
use crate::http::request::paging::Page;
use crate::http::request::query::Query;
use crate::http::state::AppState;

/// A schedule as a row.
pub(crate) struct ScheduleRow {
    pub(crate) schedule: Schedule,
    pub(crate) tone: &'static str,
    /// The next slot, unless it is to fire nothing.
    pub(crate) next: Option<Moment>,
    /// The end of the pause that ends by itself.
    pub(crate) paused_until: Option<Moment>,
    /// It is paused itself, so that it can be resumed.
    pub(crate) is_paused_itself: bool,
    /// The other paused things that hold it, in words; empty if nothing does.
    pub(crate) held_by: String,
    /// Until then it fires nothing, because the server's clock was set back.
    pub(crate) silent_until: Option<Moment>,
    /// When that slot fires, if its jitter makes it later.
    pub(crate) due: Option<Moment>,
    /// Its jitter and its bounds, in words.
    pub(crate) bounds: String,
    /// The arguments and the variables of its jobs.
    pub(crate) adds: String,
    pub(crate) last: Option<Moment>,
    pub(crate) lateness: String,
}

impl ScheduleRow {
    pub(crate) fn of(schedule: Schedule) -> Self {
        // Of a schedule that is paused or disabled, the next slot of its rule makes nothing.
        let fires = !matches!(&*schedule.state, "paused" | "disabled");
        Self {
            tone: format::tone(&schedule.state),
            next: schedule.next.first().copied().filter(|_| fires).map(format::moment),
            paused_until: schedule.paused_until.filter(|_| schedule.state == "paused").map(format::moment),
            is_paused_itself: false,
            held_by: String::new(),
            silent_until: schedule.decided_until.map(format::moment),
            due: schedule.next_due.first().copied().filter(|_| fires).map(format::moment),
            bounds: bounds(&schedule),
            adds: adds(&schedule),
            last: schedule.last_fire.as_ref().map(|fire| format::moment(fire.slot)),
            lateness: schedule
                .last_fire
                .as_ref()
                .map(|fire| format::span_ms(fire.lateness_ms))
                .unwrap_or_default(),
            schedule,
        }
    }

    /// As [`Self::with_pauses`], on the page of one definition; on that of all, nothing is paused or resumed alone.
    fn with_pauses_of(self, pauses: &Pauses, name: &str, group: Option<Arc<str>>) -> Self {
        if name.is_empty() { self } else { self.with_pauses(pauses, group) }
    }

    /// Tells its own pause from those of its definition, of the group of that, of all schedules and of the server.
    pub(crate) fn with_pauses(self, pauses: &Pauses, group: Option<Arc<str>>) -> Self {
        let (name, id) = (Arc::from(self.schedule.name.as_str()), ScheduleId::named(&self.schedule.id));
        let reaching = pauses.of_schedule(&name, group, &id);
        let (own, others): (Vec<_>, Vec<_>) =
            reaching.partition(|(target, _)| matches!(target, PauseTarget::Schedule(..)));
        let words = others.iter().map(|(target, pause)| Pause::of(target, pause).words());
        let held_by = words.collect::<Vec<_>>().join(" and ");
        Self { is_paused_itself: !own.is_empty(), held_by, ..self }
    }
}

fn bounds(schedule: &Schedule) -> String {
    let jitter = schedule.jitter_ms.map(|jitter| format!("up to {} later", format::span_ms(jitter)));
    let start = schedule.start_at.map(|start| format!("from {start}"));
    let end = schedule.end_at.map(|end| format!("until {end}"));
    jitter.into_iter().chain(start).chain(end).collect::<Vec<_>>().join(", ")
}

fn adds(schedule: &Schedule) -> String {
    let of =
        |name: &str, words: &[String]| (!words.is_empty()).then(|| format!("{name} {}", words.join(" ")));
    let all = of("arguments", &schedule.args).into_iter().chain(of("variables", &schedule.environment));
    all.collect::<Vec<_>>().join(", ")
}

/// A row of the fire ledger.
struct FireRow {
    fire: Fire,
    tone: &'static str,
    from: Moment,
    to: Moment,
    /// The slot became this job, and no job was in its way.
    made: Option<FireJob>,
    /// The last retry of that job.
    retry: Option<FireJob>,
    lateness: String,
}

/// A job of a slot with its end.
struct FireJob {
    id: u64,
    tone: &'static str,
    text: String,
}

impl FireJob {
    fn new(id: u64, state: &str, exit_code: Option<i32>) -> Self {
        let ended = matches!(state, "failed" | "succeeded");
        let exit = exit_code.filter(|code| ended && *code != 0).map(|code| format!(", exit {code}"));
        Self { id, tone: format::tone(state), text: format!("{state}{}", exit.unwrap_or_default()) }
    }
}

/// A slot within the next 24 hours, as a mark on a line.
struct Mark {
    x: u64,
    width: u64,
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
    pages: PageLinks,
    lines: Vec<Line>,
    /// The definition whose ledger is shown; empty for none.
    name: String,
    fires: Vec<FireRow>,
    older: Option<String>,
    /// Only slots whose last job is an unresolved failure.
    failed: bool,
    /// All schedules are paused, and the whole server is.
    all_paused: bool,
    server_paused: bool,
}

/// Slots of each schedule that the line of the day shows.
const SLOTS_OF_A_DAY: u64 = 100;

/// Schedules on the line of the day, those that fire first.
const LINES_MAX: usize = 20;

/// Marks of all lines, about; each line has its share. A line with more of them becomes one bar.
const MARKS_ALL: usize = 400;
/// Marks of a line at least, so that each hour has one, and at most.
const MARKS: (usize, usize) = (24, 50);

/// Width of a mark, in minutes.
const MARK_MINUTES: u64 = 6;

/// Width of the line of the day in its own units: one for each minute.
const DAY_MINUTES: u64 = 24 * 60;

/// Schedules of a page.
const PAGE: usize = 50;

/// `GET /schedules?name=&cursor=&page=&failed=`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let name = query.text("name")?.unwrap_or_default();
    let cursor = query.text("cursor")?;
    let page = query.number("page")?;
    let failed = query.switch("failed")?;
    query.finish()?;
    let definitions = state.services.catalogue.current();
    let group = match name.is_empty() {
        true => None,
        false => group_of(&definition::find(&definitions, &name)?.definition),
    };
    // Many slots are computed for those only that have a line.
    let wanted = name.clone();
    let is_wanted = move |it: &str| wanted.is_empty() || it == wanted;
    let mut all = schedules::selected(&state, is_wanted, NextSlots::unfired(1)).await?;
    all.sort_by(|a, b| (a.next.is_empty(), a.next.first()).cmp(&(b.next.is_empty(), b.next.first())));
    let lines = lines(&state, all.iter().take(LINES_MAX)).await?;
    let ledger = match name.is_empty() {
        true => Page { entries: Vec::new(), next: None },
        false => {
            let cursor = cursor.map(|cursor| ("cursor".to_owned(), cursor));
            let failed = failed.then(|| ("failed".to_owned(), "1".to_owned()));
            schedules::ledger(&state, &name, Query::new(cursor.into_iter().chain(failed).collect())).await?
        }
    };
    let pauses = state.services.engine.snapshot().pauses.clone();
    render(&SchedulesPage {
        frame: Frame::new(&state, "schedules", "Schedules"),
        lines,
        all_paused: pauses.contains(&PauseTarget::Schedules),
        server_paused: pauses.contains(&PauseTarget::Server),
        pages: PageLinks::cut(&mut all, page, PAGE),
        rows: all
            .into_iter()
            .map(|schedule| ScheduleRow::of(schedule).with_pauses_of(&pauses, &name, group.clone()))
            .collect(),
        older: ledger.next,
        failed,
        fires: ledger.entries.into_iter().map(fire_row).collect(),
        name,
    })
}

/// The lines of these schedules, in their order; none for one without a slot within a day.
async fn lines(state: &AppState, shown: impl Iterator<Item = &Schedule>) -> Result<Vec<Line>, Problem> {
    let order: Vec<(String, String)> = shown.map(|it| (it.name.clone(), it.id.clone())).collect();
    let names: HashSet<String> = order.iter().map(|(name, _)| name.clone()).collect();
    let is_shown = move |name: &str| names.contains(name);
    let full = schedules::selected(state, is_shown, NextSlots::unfired(SLOTS_OF_A_DAY)).await?;
    let marks_max = (MARKS_ALL / order.len().max(1)).clamp(MARKS.0, MARKS.1);
    let of = |(name, id): &(String, String)| full.iter().find(|it| it.name == *name && it.id == *id);
    Ok(order
        .iter()
        .filter_map(of)
        .map(|it| line(it, marks_max))
        .filter(|line| !line.marks.is_empty())
        .collect())
}

fn line(schedule: &Schedule, marks_max: usize) -> Line {
    let now = clock::now().utc;
    let day = Duration::from_secs(24 * 60 * 60);
    let within: Vec<_> = schedule.next.iter().filter(|slot| slot.0.since(now) < day).collect();
    let minute = |slot: &Time| (slot.0.since(now).as_secs() / 60).min(DAY_MINUTES);
    let marks = match within.as_slice() {
        [first, .., _] if within.len() > marks_max => {
            // Those that follow the last slot that was computed are as frequent.
            let is_cut = schedule.next.len() as u64 == SLOTS_OF_A_DAY && within.len() == schedule.next.len();
            let end =
                if is_cut { DAY_MINUTES } else { within.last().map_or(DAY_MINUTES, |slot| minute(slot)) };
            let or_more = if is_cut { " or more" } else { "" };
            let width = end.saturating_sub(minute(first)).max(MARK_MINUTES);
            vec![Mark { x: minute(first), width, title: format!("{}{or_more} slots", within.len()) }]
        }
        slots => {
            let mark = |slot: &&Time| Mark { x: minute(slot), width: MARK_MINUTES, title: slot.to_string() };
            slots.iter().map(mark).collect()
        }
    };
    Line { name: schedule.name.clone(), id: schedule.id.clone(), marks }
}

fn fire_row(fire: Fire) -> FireRow {
    FireRow {
        tone: format::tone(&fire.verdict),
        from: format::moment(fire.from),
        to: format::moment(fire.to),
        made: fire.job.zip(fire.state.as_ref()).map(|(id, state)| FireJob::new(id, state, fire.exit_code)),
        retry: fire.retry.as_ref().map(|it| FireJob::new(it.id, &it.state, it.exit_code)),
        lateness: format::span_ms(fire.lateness_ms),
        fire,
    }
}
