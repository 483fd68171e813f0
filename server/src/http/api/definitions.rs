//! `GET /api/definitions`: resolved definitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, Uri};

use crate::catalogue::Entry;
use crate::http::api::{limits, schedules};
use crate::http::middleware::problem::Problem;
use crate::http::present::definition::{count_waiting, definition};
use crate::http::present::schedule::{NextSlots, StoredSchedules};
use crate::http::present::shapes;
use crate::http::request::definition::find;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::ScheduleState;

pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<([(HeaderName, String); 1], Json<Vec<shapes::Definition>>), Problem> {
    let mut query = Query::of(&uri)?;
    let tag = query.text("tag")?;
    let with_last_ended = query.switch("last_ended")?;
    query.finish()?;
    let definitions = state.services.catalogue.current();
    let revision = definitions.revision().to_string();
    let fits = |entry: &&Arc<Entry>| tag.as_ref().is_none_or(|tag| entry.tags.contains(tag));
    let fitting: Vec<_> = definitions.iter().filter(fits).collect();
    let has_schedules = fitting.iter().any(|entry| !entry.definition.timetable.schedules.is_empty());
    let stored = match has_schedules {
        true => state.read(|archive| archive.schedules()).await?,
        false => ScheduleState::default(),
    };
    let stored = StoredSchedules::new(&stored, NextSlots::unfired(1));
    let mut shown = all(&state, fitting.iter().copied());
    for (shown, entry) in shown.iter_mut().zip(fitting) {
        shown.next_fire_at = stored.next_fire(&entry.definition);
    }
    if with_last_ended {
        add_last_ended(&state, &mut shown).await?;
    }
    Ok(([(DEFINITIONS_REVISION, revision)], Json(shown)))
}

/// Adds the job that ended last to each definition.
async fn add_last_ended(state: &AppState, shown: &mut [shapes::Definition]) -> Result<(), Problem> {
    for part in shown.chunks_mut(LAST_ENDED_PER_READ) {
        let names: Vec<String> = part.iter().map(|definition| definition.name.clone()).collect();
        let last: Vec<_> = state
            .read(move |archive| names.iter().map(|name| archive.last_ended(name)).collect::<Result<_, _>>())
            .await?;
        let presenter = state.presenter();
        for (definition, last) in part.iter_mut().zip(last) {
            definition.last_ended = last.map(|row| presenter.job(row));
        }
    }
    Ok(())
}

/// Definitions whose last job is read in one turn, so that other reads have theirs between.
const LAST_ENDED_PER_READ: usize = 256;

/// The header with the revision of all definitions. It is no `ETag`: the body also has what waits, and the next slots.
const DEFINITIONS_REVISION: HeaderName = HeaderName::from_static("longshore-definitions-revision");

/// The JSON of definitions without the next slots of their schedules.
pub(crate) fn all<'d>(
    state: &AppState,
    definitions: impl Iterator<Item = &'d Arc<Entry>>,
) -> Vec<shapes::Definition> {
    let snapshot = state.services.engine.snapshot();
    let waiting = count_waiting(&snapshot);
    let missing = state.services.missing_secrets.found();
    definitions.map(|entry| definition(entry, &waiting, &snapshot, &missing)).collect()
}

pub(crate) async fn one(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
) -> Result<Json<shapes::Definition>, Problem> {
    let definitions = state.services.catalogue.current();
    let entry = find(&definitions, &name)?;
    let snapshot = state.services.engine.snapshot();
    let missing = state.services.missing_secrets.found();
    let mut shown = definition(entry, &count_waiting(&snapshot), &snapshot, &missing);
    shown.schedules = schedules::of_definition(&state, &entry.definition).await?;
    let active = shown.schedules.iter().filter(|schedule| schedule.state == "active");
    shown.next_fire_at = active.filter_map(|schedule| schedule.next.first().copied()).min();
    shown.limits = limits::of_definition(&state, &entry.definition).await?;
    let last = state.read(move |archive| archive.last_ended(&name)).await?;
    shown.last_ended = last.map(|row| state.presenter().job(row));
    Ok(Json(shown))
}
