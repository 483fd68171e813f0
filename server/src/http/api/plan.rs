//! `POST /api/definitions/plan`: the effect that a reload of these texts would have. Nothing is changed.
//!
//! The body is the text of one jobs file, or JSON with those of several. A jobs file may be JSON, too, but none has a key `files`.
//!
//! Definitions are compared in the form in which `GET /api/definitions` shows them, so a plan never shows more than that. Values that this
//! form leaves out are compared by themselves and named without their values.

mod schedule_keys;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use scheduler::definition::Definition;
use scheduler::params::Param;
use scheduler::snapshot::Snapshot;
use serde_json::{Map, Value};

use crate::auth::audit::note;
use crate::catalogue::Entry;
use crate::clock;
use crate::config::jobs_file::{FILE_BYTES_MAX, JobsText, NameFault, NamedText};
use crate::http::api::definitions;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::definition::{Waiting, count_waiting, definition};
use crate::http::present::shapes::{self, ChangedDefinition, KeyChange, PlannedDefinition, Time};
use crate::http::request::body;
use crate::http::request::content_type::form;
use crate::http::request::path::Name;
use crate::http::state::AppState;
use crate::reload::{Proposed, pauses};
use crate::ws::MissingByRevision;

/// Bytes of a body that is a jobs file: one more than the largest has, so that a longer one gets the fault that a reload would give it.
pub(super) const BYTES_MAX: usize = FILE_BYTES_MAX + 1;

/// Bytes of a body with several files: JSON writes two bytes for a line break or a quotation mark, and each file has a name.
const JSON_BYTES_MAX: usize = 2 * FILE_BYTES_MAX;

/// Slots of a definition that are shown.
const NEXT_SHOWN: usize = 3;

/// `POST /api/definitions/plan`
pub(crate) async fn plan(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<shapes::Plan>, Problem> {
    let is_json = form(request.headers(), false).is_ok();
    let bytes_max = if is_json { JSON_BYTES_MAX } else { BYTES_MAX };
    let body = body::read(request.into_body(), bytes_max, body::TIMEOUT).await?;
    let parse =
        move || if is_json && has_files(&body) { several(&body) } else { one(body).map(JobsText::File) };
    let text = state.parse_blocking(parse).await?;
    let proposed = state.services.reloader.propose(text).await?;
    let snapshot = state.services.engine.snapshot();
    let mut plan = compare(proposed, &snapshot);
    plan.cancels_removed = state.services.reloader.cancels_removed();
    if !(plan.changed.is_empty() && plan.removed.is_empty()) {
        add_scheduled(&mut plan, &state.read(|archive| archive.scheduled_jobs()).await?);
    }
    note::object("definitions");
    note::detail(in_words(&plan));
    Ok(Json(plan))
}

/// True for JSON with the key `files`.
pub(super) fn has_files(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Files {
        #[serde(rename = "files")]
        _files: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Files>(body).is_ok()
}

/// The texts of several jobs files.
fn several(body: &[u8]) -> Result<JobsText, Problem> {
    let shapes::JobsFiles { files } = body::parse(body)?;
    let files = files.into_iter().map(|shapes::JobsFile { name, text }| NamedText { name, text });
    JobsText::of_files(files.collect()).map_err(|NameFault { file, text }| {
        let field = file.map_or_else(|| "files".to_owned(), |number| format!("files[{number}].name"));
        Problem::new(ProblemCode::InvalidJobsFile, text).field(field)
    })
}

/// The text of one jobs file.
pub(super) fn one(body: Bytes) -> Result<String, Problem> {
    String::from_utf8(body.into()).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        Problem::new(ProblemCode::InvalidRequest, format!("the body is not UTF-8 at byte {offset}"))
    })
}

/// `GET /api/definitions/plan`: a definition may be named `plan`.
pub(crate) async fn definition_named_plan(
    state: State<Arc<AppState>>,
) -> Result<Json<shapes::Definition>, Problem> {
    definitions::one(state, Name("plan".to_owned())).await
}

/// Sets the numbers of jobs that wait for their time. The snapshot does not know them, so they are those of the store.
pub(super) fn add_scheduled(plan: &mut shapes::Plan, counts: &BTreeMap<String, u64>) {
    let changed = plan.changed.iter_mut().map(|changed| &mut changed.definition);
    for definition in plan.removed.iter_mut().chain(changed) {
        definition.scheduled = counts.get(&definition.name).copied().unwrap_or(0);
    }
}

/// The effect that a reload would have, for the audit log.
pub(super) fn in_words(plan: &shapes::Plan) -> String {
    let changes = note::changes([
        ("add", plan.added.iter().map(|it| &it.name).collect()),
        ("change", plan.changed.iter().map(|it| &it.definition.name).collect()),
        ("remove", plan.removed.iter().map(|it| &it.name).collect()),
    ]);
    format!("would {}", changes.as_deref().unwrap_or("change nothing"))
}

/// The differences between the present definitions and proposed ones.
pub(super) fn compare(proposed: Proposed, snapshot: &Snapshot) -> shapes::Plan {
    let Proposed { current, definitions, warnings } = proposed;
    let waiting = count_waiting(snapshot);
    let mut plan = shapes::Plan {
        current_revision: current.revision().to_string(),
        revision: definitions.revision().to_string(),
        warnings,
        ..shapes::Plan::default()
    };
    for new in definitions.iter() {
        let Some(old) = current.find(&new.definition.name) else {
            plan.added.push(coming(new, &waiting, snapshot));
            continue;
        };
        match differences(old, new) {
            keys if keys.is_empty() => plan.unchanged += 1,
            keys => {
                plan.changed.push(ChangedDefinition {
                    definition: coming(new, &waiting, snapshot),
                    from_revision: old.definition.revision.to_string(),
                    to_revision: new.definition.revision.to_string(),
                    keys,
                });
            }
        }
    }
    plan.warnings.extend(pauses::lost(&current, &definitions, &snapshot.pauses));
    let gone = current.iter().filter(|old| definitions.find(&old.definition.name).is_none());
    plan.removed = gone.map(|old| planned(old, &waiting)).collect();
    plan
}

fn planned(entry: &Entry, waiting: &Waiting<'_>) -> PlannedDefinition {
    let name = entry.definition.name.clone();
    let queued = waiting.get(name.as_str()).map_or(0, |counts| counts.values().sum());
    PlannedDefinition { name, queued, ..PlannedDefinition::default() }
}

/// A definition that jobs may be made of after the reload.
fn coming(entry: &Entry, waiting: &Waiting<'_>, snapshot: &Snapshot) -> PlannedDefinition {
    let (next, unmet) = (next_slots(&entry.definition), unmet(&entry.definition, snapshot));
    PlannedDefinition { next, unmet, ..planned(entry, waiting) }
}

fn next_slots(definition: &Definition) -> Vec<Time> {
    let mut next = BTreeSet::new();
    for schedule in definition.timetable.schedules.iter().filter(|_| definition.enabled) {
        let first = schedule.next_slot_after(clock::now().utc);
        next.extend(std::iter::successors(first, |slot| schedule.next_slot_after(*slot)).take(NEXT_SHOWN));
    }
    next.into_iter().take(NEXT_SHOWN).map(Time).collect()
}

/// The conditions on labels that no connected worker fulfils; none if no worker is connected. It looks at all workers, because an operator
/// asks for it.
fn unmet(definition: &Definition, snapshot: &Snapshot) -> Vec<String> {
    let connected = || snapshot.workers.iter().filter(|worker| worker.session.is_some());
    if connected().next().is_none() {
        return Vec::new();
    }
    let rules = definition.placement.requires.iter();
    let rules = rules.filter(|rule| !connected().any(|worker| rule.holds(worker.label(&rule.label))));
    rules.map(ToString::to_string).collect()
}

/// The keys with other values, by name.
pub(crate) fn differences(old: &Entry, new: &Entry) -> Vec<KeyChange> {
    let (before, after) = (shown(old), shown(new));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let mut keys: Vec<KeyChange> = differing
        .map(|name| KeyChange {
            key: name.clone(),
            old: before.get(name).cloned(),
            new: after.get(name).cloned(),
            at_once: acts_at_once(name, before.contains_key(name)),
            hidden: false,
        })
        .collect();
    let mut hidden = hidden_differences(old, new);
    hidden.retain(|name| keys.iter().all(|change| change.key != *name));
    keys.extend(hidden.into_iter().map(|key| KeyChange {
        at_once: acts_at_once(&key, true),
        key,
        hidden: true,
        ..KeyChange::default()
    }));
    if keys.is_empty() && (old.definition != new.definition || old.stored != new.stored) {
        keys.push(KeyChange { key: "other".to_owned(), hidden: true, ..KeyChange::default() });
    }
    keys
}

/// A change of this key acts on jobs that were made before, too (docs/jobs-yaml.md). Jobs that were made before their definition had a limit
/// are not counted, so a new limit acts on new jobs only.
fn acts_at_once(key: &str, has_value: bool) -> bool {
    let is_within =
        |of: &str| key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    AT_ONCE.iter().any(|of| is_within(of)) || (has_value && LIMITS.contains(&key))
}

/// Keys of which the definition that jobs.yaml has now counts for all jobs of its name.
const AT_ONCE: [&str; 7] =
    ["workers", "max_queued", "expect", "notify", "retention", "overlap", "ping_interval_ms"];

/// Likewise, once there is such a limit.
const LIMITS: [&str; 4] = ["concurrency.limit", "rate_limit.limit", "rate_limit.per_ms", "rate_limit.burst"];

/// Each key with its value, as the API shows it.
pub(crate) fn shown(entry: &Entry) -> BTreeMap<String, Value> {
    // Without a state of the scheduler, so that only the file counts.
    let shape = definition(entry, &Waiting::new(), &Snapshot::default(), &MissingByRevision::new());
    let mut keys = BTreeMap::new();
    if let Ok(Value::Object(map)) = serde_json::to_value(&shape) {
        flatten("", map, &mut keys);
    }
    for computed in ["name", "revision", "file", "expect.condition"] {
        keys.remove(computed);
    }
    for schedule in &entry.definition.timetable.schedules {
        schedule_keys::add_shown(schedule, &mut keys);
    }
    keys
}

/// Maps become a key for each entry; lists of named entries too.
fn flatten(path: &str, map: Map<String, Value>, keys: &mut BTreeMap<String, Value>) {
    for (name, value) in map {
        let key = if path.is_empty() { name } else { format!("{path}.{name}") };
        match value {
            Value::Object(inner) => flatten(&key, inner, keys),
            Value::Array(items) if key == "params" => {
                for mut item in items {
                    let Some(param) = item.as_object_mut() else { continue };
                    let name = param.remove("name").and_then(|name| name.as_str().map(str::to_owned));
                    flatten(&format!("{key}.{}", name.unwrap_or_default()), param.clone(), keys);
                }
            }
            Value::Null => {}
            value => drop(keys.insert(key, value)),
        }
    }
}

/// The parameters that both have stand in another order, which people see in forms.
fn has_other_order(old: &Entry, new: &Entry) -> bool {
    let both = |entry: &Entry, other: &Entry| -> Vec<String> {
        let of_other = &other.params_in_order;
        entry.params_in_order.iter().filter(|name| of_other.contains(name)).cloned().collect()
    };
    // An entry of the store has no order.
    both(old, new) != both(new, old)
}

/// Keys whose values differ and are not shown by the API.
fn hidden_differences(old: &Entry, new: &Entry) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let variables: BTreeMap<_, _> =
        old.definition.container.environment.iter().map(|(name, value)| (name, value)).collect();
    let changed = new.definition.container.environment.iter();
    let changed = changed.filter(|(name, value)| variables.get(name).is_some_and(|old| *old != value));
    keys.extend(changed.map(|(name, _)| format!("environment.{name}")));
    let params = &old.definition.submission.params.declared;
    for param in new.definition.submission.params.declared.iter().filter(|param| param.secret) {
        let is_same = |old: &&Param| old.name == param.name && old.absence != param.absence;
        if params.iter().any(|old| is_same(&old)) {
            keys.insert(format!("params.{}.default", param.name));
        }
    }
    if has_other_order(old, new) {
        keys.insert("params".to_owned());
    }
    if old.definition.container.input != new.definition.container.input {
        keys.insert("input".to_owned());
    }
    if old.definition.secrets != new.definition.secrets {
        keys.insert("secrets".to_owned());
    }
    if old.notify != new.notify {
        keys.insert("notify".to_owned());
    }
    let schedules = &old.definition.timetable.schedules;
    for schedule in &new.definition.timetable.schedules {
        if let Some(old) = schedules.iter().find(|old| old.id == schedule.id) {
            schedule_keys::add_hidden(old, schedule, &mut keys);
        }
    }
    keys.extend(
        (old.definition.timetable.catch_up != new.definition.timetable.catch_up)
            .then(|| "catch_up".to_owned()),
    );
    keys
}
