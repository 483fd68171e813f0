//! `POST /api/definitions/{name}/backfill`: the jobs of past slots that have none.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use jiff::civil::Date;
use protocol::{JobId, Timestamp};
use scheduler::definition::Definition;
use scheduler::details::JobDetails;
use scheduler::ids::GroupNo;
use scheduler::schedule::backfill::{
    NEIGHBOURS, RANGE_MAX, SLOTS_MAX, SlotFate, TooManySlots, plan, reading_range,
};
use scheduler::schedule::{Schedule, ScheduleId, Zone};
use scheduler::step::{Answer, Rejection};

use crate::auth::actor::Actor;
use crate::clock;
use crate::engine::Busy;
use crate::http::api::admission;
use crate::http::api::schedule_choice;
use crate::http::api::submission_answer::json;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::body;
use crate::http::request::path::Name;
use crate::http::request::query::{Moment, Query, invalid_query};
use crate::http::request::stored_size::StoredSize;
use crate::http::state::AppState;

/// The query parameters.
struct Params {
    schedule: Option<String>,
    from: Moment,
    /// Now if absent.
    to: Option<Moment>,
    interval: Duration,
    /// Slots that a job of an earlier rule covers get a job, too.
    covered: bool,
    dry_run: bool,
}

impl Params {
    fn read(mut query: Query) -> Result<Self, Problem> {
        let schedule = query.text("schedule")?;
        let from = query.moment("from")?;
        let to = query.moment("to")?;
        let covered = query.switch("covered")?;
        let interval = query.duration("interval", INTERVAL_MAX)?.unwrap_or_default();
        let dry_run = query.switch("dry_run")?;
        query.finish()?;
        let Some(from) = from else {
            return Err(Problem::new(
                ProblemCode::MissingField,
                "a backfill needs the beginning of its range",
            )
            .field("?from")
            .hint("from=2026-03-01T00:00:00Z"));
        };
        Ok(Self { schedule, from, to, interval, covered, dry_run })
    }

    /// The first and the last instant of the range in the zone of a schedule. A date as the end belongs to the range.
    fn range(&self, zone: &Zone) -> Result<(Timestamp, Timestamp), Problem> {
        let now = clock::now().utc;
        let midnight = |date: Date| zone.first_instant(date.at(0, 0, 0, 0));
        let from = match self.from {
            Moment::Instant(at) => Some(at),
            Moment::Date(date) => midnight(date),
        };
        let to = match self.to {
            None => Some(now),
            Some(Moment::Instant(at)) => Some(at),
            Some(Moment::Date(date)) => {
                date.tomorrow().ok().and_then(midnight).map(|end| Timestamp(end.0 - 1))
            }
        };
        let no_day = |field| invalid_query(field, "there is no such day in the zone of the schedule");
        let (from, to) = (from.ok_or_else(|| no_day("from"))?, to.ok_or_else(|| no_day("to"))?);
        if from > to && self.to.is_some() {
            return Err(invalid_query("from", "it is later than \"to\""));
        }
        if from > now {
            return Err(invalid_query(
                "from",
                "it is in the future: only slots that have passed can be made up for",
            ));
        }
        Ok((from, to.min(now)))
    }
}

pub(crate) async fn backfill(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    request: Request,
) -> Result<Response, Problem> {
    state.check_accepting()?;
    let (parts, body) = request.into_parts();
    let params = Params::read(Query::of(&parts.uri)?)?;
    body::none(body).await?;
    let actor = Actor::current();
    actor.check_scope(&name)?;
    for _ in 0..TRIES_MAX {
        // Each try has the definition of its moment.
        let definitions = state.services.catalogue.current();
        let definition = admission::find_to_run(&definitions, &name, None, actor.role)?.definition.clone();
        let schedule = schedule_choice::find(&definition, params.schedule.as_deref())?;
        decide_passed_slots(&state, &definition, &schedule.id).await?;
        if let Some(shown) = try_once(&state, &definition, schedule, &params).await? {
            let status = if shown.batch.is_some() { StatusCode::CREATED } else { StatusCode::OK };
            return Ok(json(status, HeaderMap::new(), &shown));
        }
    }
    Err(Busy.into())
}

/// Lets the engine write down the slots of a paused schedule that have passed: it does so only now and then by itself. A definition that
/// can have no backfill is refused here.
async fn decide_passed_slots(
    state: &AppState,
    definition: &Definition,
    schedule: &ScheduleId,
) -> Result<(), Problem> {
    if !definition.enabled {
        return Err(Rejection::Disabled.into());
    }
    // A backfill of no slots depends on no reading of the ledger.
    let read_at = GroupNo(u64::MAX);
    submit(state, definition, schedule, Vec::new(), Duration::ZERO, read_at).await.map(drop)
}

/// Reads the ledger once and submits the jobs of its open slots. Returns none if the ledger has changed in between.
async fn try_once(
    state: &Arc<AppState>,
    definition: &Definition,
    schedule: &Schedule,
    params: &Params,
) -> Result<Option<shapes::Backfill>, Problem> {
    let (from, to) = params.range(&schedule.zone)?;
    let range = reading_range(schedule, from, to);
    let (name, id) = (definition.name.clone(), schedule.id.clone());
    // One more than is allowed shows that the reading is not whole.
    let read = move |archive: &dyn crate::store::Archive| {
        archive.ledger(&name, id.as_str(), range, RANGE_MAX + NEIGHBOURS + 1)
    };
    let (reading, read_at) = state.read(read).await?;
    let mut slots = plan(schedule, from, to, &reading).map_err(too_many)?;
    if params.covered {
        for (_, fate) in slots.iter_mut().filter(|(_, fate)| matches!(fate, SlotFate::Covered(_))) {
            *fate = SlotFate::Open;
        }
    }
    let open = slots.iter().filter(|(_, fate)| *fate == SlotFate::Open).map(|(slot, _)| *slot);
    let open: Vec<Timestamp> = open.collect();
    let count = open.len();
    if count > SLOTS_MAX {
        return Err(too_many(TooManySlots::Open(count)));
    }
    let details = JobDetails {
        overrides: schedule.overrides_at(to),
        params: schedule.params.as_deref().cloned().unwrap_or_default(),
        ..JobDetails::default()
    };
    StoredSize::default().add(Some(&details), count).map_err(|problem| problem.field("?to"))?;
    let first = if params.dry_run {
        None
    } else {
        match submit(state, definition, &schedule.id, open, params.interval, read_at).await? {
            Submitted::Jobs { first } => Some(first),
            Submitted::NothingOpen => None,
            Submitted::LedgerChanged => return Ok(None),
        }
    };
    let mut next = first.map(|first| first.0);
    let shown = slots.into_iter().map(|(slot, fate)| {
        let (result, job) = match fate {
            SlotFate::Open => match &mut next {
                Some(next) => {
                    let job = *next;
                    *next += 1;
                    ("backfilled", Some(job))
                }
                None => ("open", None),
            },
            SlotFate::Fired(job) => ("fired", Some(job.0)),
            SlotFate::Covered(job) => ("covered", Some(job.0)),
            SlotFate::Forgotten => ("forgotten", None),
            SlotFate::Undecided => ("undecided", None),
        };
        shapes::BackfillSlot { slot: Time(slot), result: result.into(), job }
    });
    Ok(Some(shapes::Backfill {
        name: definition.name.clone(),
        schedule: schedule.id.to_string(),
        timezone: schedule.zone.name().to_owned(),
        dry_run: params.dry_run,
        count: count as u64,
        batch: first.map(|first| first.0),
        slots: shown.collect(),
    }))
}

/// The engine's answer to a backfill that was not refused.
enum Submitted {
    /// Jobs with consecutive ids.
    Jobs { first: JobId },
    /// No slot of the range is open.
    NothingOpen,
    /// The ledger has changed since it was read: read it again.
    LedgerChanged,
}

/// Submits the jobs of these slots.
async fn submit(
    state: &AppState,
    definition: &Definition,
    schedule: &ScheduleId,
    slots: Vec<Timestamp>,
    interval: Duration,
    read_at: GroupNo,
) -> Result<Submitted, Problem> {
    let name = definition.name.as_str().into();
    let by = Actor::current().token.clone();
    match state.services.engine.backfill(name, schedule.clone(), slots, interval, by, read_at).await? {
        Answer::Accepted(accepted) => Ok(Submitted::Jobs { first: accepted.first }),
        Answer::Done => Ok(Submitted::NothingOpen),
        Answer::Rejected(Rejection::LedgerReadingTooOld) => Ok(Submitted::LedgerChanged),
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

fn too_many(why: TooManySlots) -> Problem {
    let detail = match why {
        TooManySlots::Open(count) => {
            format!("{count} slots of this range have no job; one request makes {SLOTS_MAX} jobs at most")
        }
        TooManySlots::InRange => {
            format!("the range has more than {RANGE_MAX} slots, with those of earlier rules")
        }
    };
    Problem::new(ProblemCode::TooManyJobs, detail)
        .field("?to")
        .hint("ask for a shorter range, and then for the rest")
}

/// Tries before the answer is `busy`: each one met another backfill of the same schedule.
const TRIES_MAX: usize = 5;

/// The longest distance between two jobs of a backfill.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
