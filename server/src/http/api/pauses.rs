//! Pauses of the server, of groups, definitions, schedules and batches.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use scheduler::origin::{Intervention, Origin};
use scheduler::pauses::{PauseResult, PauseTarget, group_of};
use scheduler::schedule::ScheduleId;
use scheduler::snapshot::Snapshot;
use scheduler::step::{Answer, Rejection};

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::excerpt::excerpt;
use crate::http::api::submission_answer::YES;
use crate::http::api::{batches, bulk};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::definition::find;
use crate::http::request::intervention::InterventionOrder;
use crate::http::request::path::{Name, NameAndVerb};
use crate::http::request::query::{Query, nearest};
use crate::http::request::{body, intervention};
use crate::http::state::AppState;
use crate::store::BatchRow;

/// `GET /api/pauses`
pub(crate) async fn list(
    State(state): State<Arc<AppState>>,
    uri: Uri,
) -> Result<Json<Vec<shapes::Pause>>, Problem> {
    Query::of(&uri)?.finish()?;
    let snapshot = state.services.engine.snapshot();
    Ok(Json(snapshot.pauses.iter().map(|(target, pause)| shapes::Pause::of(target, pause)).collect()))
}

/// `POST /api/pause` and `/api/resume`: everything, with `?group=` the definitions of a group.
pub(crate) async fn pause_all(
    State(state): State<Arc<AppState>>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let group = query.text("group")?;
    query.finish()?;
    let paused = uri.path().ends_with("/pause");
    let order = order(paused, &parts.headers, body).await?;
    let form = AnswerForm::of(&parts.headers);
    let target = group.map_or(PauseTarget::Server, |group| PauseTarget::Group(group.into()));
    perform(&state, target, order, form).await
}

/// `POST /api/definitions/{name}/pause` and `/resume`, with `?schedule=` for one of its schedules.
pub(crate) async fn pause_definition(
    State(state): State<Arc<AppState>>,
    NameAndVerb(name, verb): NameAndVerb,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let paused = is_pause(&verb, "definitions")?;
    let mut query = Query::of(&parts.uri)?;
    let schedule = query.text("schedule")?;
    query.finish()?;
    let order = order(paused, &parts.headers, body).await?;
    let target = match schedule {
        Some(id) => PauseTarget::Schedule(name.into(), ScheduleId::named(&id)),
        None => PauseTarget::Definition(name.into()),
    };
    perform(&state, target, order, AnswerForm::of(&parts.headers)).await
}

/// `POST /api/schedules/pause` and `/resume`.
pub(crate) async fn pause_schedules(
    State(state): State<Arc<AppState>>,
    Name(verb): Name,
    request: Request,
) -> Result<Response, Problem> {
    let paused = is_pause(&verb, "schedules")?;
    let (parts, body) = request.into_parts();
    let order = order(paused, &parts.headers, body).await?;
    perform(&state, PauseTarget::Schedules, order, AnswerForm::of(&parts.headers)).await
}

/// `POST /api/batches/{id}/pause` and `/resume`.
pub(crate) async fn pause_batch(
    state: &Arc<AppState>,
    batch: &BatchRow,
    paused: bool,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    Query::of(&parts.uri)?.finish()?;
    let order = order(paused, &parts.headers, body).await?;
    let target = PauseTarget::Batch(batch.first);
    note::object(target.to_string());
    if batch.ended_at.is_some() {
        return Err(batches::has_ended(batch.first, batch.state.name()));
    }
    bulk::check_scope_of_members(state, batch.first).await?;
    let found = command(state, &target, order, batch.definition.as_deref(), AnswerForm::of(&parts.headers));
    found.await
}

/// A command of an operator.
enum PauseOrResume {
    Pause(InterventionOrder),
    Resume { by: Arc<str> },
}

/// Reads the body of a request. A resume has none.
///
/// # Errors
/// Those of a body.
async fn order(paused: bool, headers: &HeaderMap, body: Body) -> Result<PauseOrResume, Problem> {
    if paused {
        return intervention::read(headers, body).await.map(PauseOrResume::Pause);
    }
    body::none(body).await?;
    Ok(PauseOrResume::Resume { by: Actor::current().token.clone().unwrap_or_default() })
}

/// The form of the answer that the client prefers (RFC 7240).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerForm {
    /// 204.
    Empty,
    /// 200 with the pauses before and after the command: `Prefer: return=representation`.
    Representation,
}

impl AnswerForm {
    fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let mut preferences = values.flat_map(|value| value.split(','));
        // `return="representation"; foo` means the same.
        let wants = |preference: &str| {
            let text = preference.split(';').next().unwrap_or_default().replace('"', "");
            text.trim().eq_ignore_ascii_case("return=representation")
        };
        match preferences.any(wants) {
            true => Self::Representation,
            false => Self::Empty,
        }
    }
}

fn is_pause(verb: &str, of: &str) -> Result<bool, Problem> {
    match verb {
        "pause" => Ok(true),
        "resume" => Ok(false),
        other => {
            let detail = format!("\"{}\" is nothing that can be done with {of}", excerpt(other));
            Err(Problem::new(ProblemCode::NotFound, detail).hint("the verbs are pause and resume"))
        }
    }
}

/// Pauses or resumes.
///
/// # Errors
/// `out_of_scope`, `unknown_job`, `unknown_group`, `unknown_schedule`, and those of the engine.
async fn perform(
    state: &AppState,
    target: PauseTarget,
    order: PauseOrResume,
    form: AnswerForm,
) -> Result<Response, Problem> {
    note::object(target.to_string());
    let actor = Actor::current();
    match &target {
        PauseTarget::Definition(name) | PauseTarget::Schedule(name, _) => actor.check_scope(name)?,
        PauseTarget::Server | PauseTarget::Group(_) | PauseTarget::Schedules | PauseTarget::Batch(_) => {
            actor.check_whole_scope()?;
        }
    }
    let snapshot = state.services.engine.snapshot();
    // A paused definition or group may have left jobs.yaml since.
    let was_paused = snapshot.pauses.contains(&target);
    if !was_paused {
        check_known(state, &snapshot, &target)?;
    }
    command(state, &target, order, None, form).await
}

/// Gives a command to the engine. `member` is the definition of a member of the batch that is the target.
///
/// # Errors
/// `already_finished`, `too_many_paused`, `unknown_schedule`, and those of the engine.
async fn command(
    state: &AppState,
    target: &PauseTarget,
    order: PauseOrResume,
    member: Option<&str>,
    form: AnswerForm,
) -> Result<Response, Problem> {
    let (paused, until, origin) = match order {
        PauseOrResume::Pause(InterventionOrder { until, origin }) => (true, until, origin),
        PauseOrResume::Resume { by } => (false, None, Origin { by, reason: None }),
    };
    match state.services.engine.pause(target.clone(), paused, until, origin).await? {
        Answer::Pause(result) => Ok(answer(state, target, (paused, member), &result, form)),
        Answer::Rejected(Rejection::UnknownSchedule) => Err(no_schedule(target)),
        Answer::Rejected(Rejection::NotLive) => match target {
            PauseTarget::Batch(first) => Err(batches::has_ended(*first, "ended")),
            _ => Err(Rejection::NotLive.into()),
        },
        Answer::Rejected(rejection) => Err(rejection.into()),
        answer => Err(Problem::unexpected_answer(&answer)),
    }
}

/// The answer to a command that was carried out. A header marks a pause of what is paused already with this end and reason, and a resume of
/// what is not.
fn answer(
    state: &AppState,
    target: &PauseTarget,
    (paused, member): (bool, Option<&str>),
    result: &PauseResult,
    form: AnswerForm,
) -> Response {
    let mut headers = HeaderMap::new();
    if !result.is_changed() {
        headers.insert("pause-unchanged", YES);
    }
    if form == AnswerForm::Empty {
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    headers.insert("preference-applied", HeaderValue::from_static("return=representation"));
    let shown = |pause: &Option<Intervention>| pause.as_ref().map(|it| shapes::Pause::of(target, it));
    let others = if paused { Vec::new() } else { others(state, target, member) };
    let shown = shapes::PauseResult {
        changed: result.is_changed(),
        pause: shown(&result.in_force),
        former: shown(&result.former),
        others,
    };
    (headers, Json(shown)).into_response()
}

/// The pauses that reach jobs or schedules of this target, but are not its own. Walks over all of them and once over all definitions, for a
/// command of an operator.
fn others(state: &AppState, target: &PauseTarget, member: Option<&str>) -> Vec<shapes::Pause> {
    let snapshot = state.services.engine.snapshot();
    let catalogue = state.services.catalogue.current();
    let (mut members, mut scheduled) = (HashSet::new(), HashSet::new());
    let mut scheduled_groups = HashSet::new();
    let of_catalogue = catalogue.iter().map(|entry| &entry.definition);
    for definition in of_catalogue.chain(snapshot.definitions.values()) {
        let (name, group) = (definition.name.as_str(), group_of(definition));
        let is_scheduled = !definition.timetable.schedules.is_empty();
        scheduled.extend(is_scheduled.then_some(name));
        scheduled_groups.extend(group.clone().filter(|_| is_scheduled));
        members.extend(group.map(|group| (group, name)));
    }
    // A pair is in one order only: the wider target first.
    let have_in_common = |wide: &PauseTarget, narrow: &PauseTarget| match (wide, narrow) {
        (PauseTarget::Server, _) | (PauseTarget::Schedules, PauseTarget::Schedule(..)) => true,
        (PauseTarget::Schedules, PauseTarget::Group(group)) => scheduled_groups.contains(group),
        (PauseTarget::Schedules, PauseTarget::Definition(name)) => scheduled.contains(&**name),
        (PauseTarget::Group(group), PauseTarget::Definition(name) | PauseTarget::Schedule(name, _)) => {
            members.contains(&(Arc::clone(group), &**name))
        }
        (PauseTarget::Definition(of), PauseTarget::Schedule(name, _)) => of == name,
        // Of a batch with several definitions one is known.
        (PauseTarget::Definition(of), PauseTarget::Batch(_)) => member == Some(&**of),
        (PauseTarget::Group(group), PauseTarget::Batch(_)) => {
            member.is_some_and(|name| members.contains(&(Arc::clone(group), name)))
        }
        (PauseTarget::Schedules | PauseTarget::Schedule(..), PauseTarget::Batch(_)) => false,
        // Two groups, two definitions, two schedules, or two batches.
        _ => false,
    };
    let reaches = |other: &PauseTarget| {
        let (wide, narrow) = if target < other { (target, other) } else { (other, target) };
        target != other && have_in_common(wide, narrow)
    };
    let others = snapshot.pauses.iter().filter(|(other, _)| reaches(other));
    others.map(|(other, pause)| shapes::Pause::of(other, pause)).collect()
}

/// jobs.yaml or a job that has not ended has the definition or the group. The scheduler knows the schedules. Walks over all definitions, for
/// a request of an operator.
fn check_known(state: &AppState, snapshot: &Snapshot, target: &PauseTarget) -> Result<(), Problem> {
    let definitions = state.services.catalogue.current();
    let mut in_use = snapshot.definitions.values();
    match target {
        PauseTarget::Server | PauseTarget::Schedules | PauseTarget::Schedule(..) | PauseTarget::Batch(_) => {
            Ok(())
        }
        PauseTarget::Definition(name) if in_use.any(|it| *it.name == **name) => Ok(()),
        PauseTarget::Group(name) if in_use.any(|it| group_of(it).as_ref() == Some(name)) => Ok(()),
        PauseTarget::Definition(name) => find(&definitions, name).map(|_| ()),
        PauseTarget::Group(name) => {
            let groups: Vec<Arc<str>> =
                definitions.iter().filter_map(|entry| group_of(&entry.definition)).collect();
            if groups.contains(name) {
                return Ok(());
            }
            let detail = format!("no definition has a concurrency with the group \"{}\"", excerpt(name));
            let problem = Problem::new(ProblemCode::UnknownGroup, detail).field("?group");
            Err(problem.near(nearest(name, groups.iter().map(|group| &**group))))
        }
    }
}

/// Says that there is nothing that could be paused or resumed.
fn no_schedule(target: &PauseTarget) -> Problem {
    let detail = match target {
        PauseTarget::Schedule(name, id) => {
            format!("\"{}\" has no schedule \"{}\"", excerpt(name), excerpt(id.as_str()))
        }
        other => format!("there is no schedule of {other}"),
    };
    Problem::new(ProblemCode::UnknownSchedule, detail).hint("GET /api/schedules lists all schedules")
}
