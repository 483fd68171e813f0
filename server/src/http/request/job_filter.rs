//! The filters that select jobs, for lists and for bulk operations.

use std::collections::BTreeSet;

use protocol::report::Outcome;
use protocol::{JobId, Revision, WorkerId};
use scheduler::job::State as JobState;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::{Query, invalid_query, nearest};
use crate::http::request::{cursor, positions};
use crate::http::state::AppState;
use crate::store::JobFilter;
use crate::wildcard::matches;

/// The parameters that [`read`] takes, without the cursor.
pub(crate) const NAMES: [&str; 21] = [
    "state",
    "name",
    "worker",
    "label",
    "batch",
    "index",
    "member_of",
    "schedule",
    "submitted_by",
    "revision",
    "outcome",
    "exit_code",
    "since",
    "until",
    "accepted_since",
    "accepted_until",
    "ended_since",
    "ended_until",
    "text",
    "unresolved",
    "backoff",
];

/// Reads the filters of a query; the limit is left to the caller.
///
/// # Errors
/// `invalid_query`, `invalid_state`, `invalid_cursor`, or `unknown_name` with similar names.
pub(crate) async fn read(state: &AppState, query: &mut Query) -> Result<JobFilter, Problem> {
    let (worker, names) = (query.text("worker")?, query.text("name")?);
    let mut filter = JobFilter {
        states: query.text("state")?.as_deref().map_or(Ok(Vec::new()), states)?,
        label: query.text("label")?.as_deref().map(label).transpose()?,
        batch: query.number("batch")?.map(JobId),
        positions: positions::read(query)?,
        parent: query.number("member_of")?.map(JobId),
        schedule: not_empty(query, "schedule")?,
        submitted_by: not_empty(query, "submitted_by")?,
        revision: query.text("revision")?.as_deref().map(|text| revision("revision", text)).transpose()?,
        outcomes: query.text("outcome")?.as_deref().map_or(Ok(Vec::new()), outcomes)?,
        exit_code: query.text("exit_code")?.as_deref().map(exit_code).transpose()?,
        ended_since: query.since("ended_since")?,
        ended_until: query.until("ended_until")?,
        text: not_empty(query, "text")?,
        unresolved: chosen(query, "unresolved")?,
        backoff: chosen(query, "backoff")?,
        before: query.text("cursor")?.as_deref().map(cursor::read).transpose()?,
        ..JobFilter::default()
    };
    let (since, until) = (query.since("since")?, query.until("until")?);
    filter.since = query.since("accepted_since")?.or(since);
    filter.until = query.until("accepted_until")?.or(until);
    if let Some(names) = names {
        let resolved = resolve(state, &names).await?;
        let is_any = names.split(',').any(|name| name == "*");
        match <[String; 1]>::try_from(resolved) {
            // Every job has a name, and definitions may be very many.
            _ if is_any => {}
            Ok([name]) => filter.name = Some(name),
            Err(several) => filter.names = several,
        }
    }
    if let Some(worker) = worker {
        filter.worker = Some(worker_named(state, worker).await?);
    }
    positions::check(state, &filter).await?;
    Ok(filter)
}

/// An empty text would select every job, and a bulk request would act on all of them.
pub(crate) fn not_empty(query: &mut Query, parameter: &'static str) -> Result<Option<String>, Problem> {
    match query.text(parameter)? {
        Some(text) if text.is_empty() => {
            Err(invalid_query(parameter, "it is empty").hint("leave it out to select all jobs"))
        }
        text => Ok(text),
    }
}

/// True if a filter without a value is chosen. Another value would select every job, too.
fn chosen(query: &mut Query, parameter: &'static str) -> Result<bool, Problem> {
    match query.text(parameter)?.as_deref() {
        None => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(invalid_query(parameter, "it is 1").hint("leave it out to select all jobs")),
    }
}

/// The names of all definitions, also of those of which only jobs are left.
async fn known_names(state: &AppState) -> Result<BTreeSet<String>, Problem> {
    let mut known: BTreeSet<String> =
        state.read(|archive| archive.definition_names()).await?.into_iter().collect();
    known.extend(state.services.catalogue.current().iter().map(|entry| entry.definition.name.clone()));
    Ok(known)
}

/// The pattern of the definitions that have this text in their names; `None` if there are none, or the text is a pattern or a list.
///
/// # Errors
/// Those of a read.
pub(crate) async fn pattern_of_part(state: &AppState, part: &str) -> Result<Option<String>, Problem> {
    if part.is_empty() || part.contains(['*', ',']) {
        return Ok(None);
    }
    let is_part = known_names(state).await?.iter().any(|name| name.contains(part));
    Ok(is_part.then(|| format!("*{part}*")))
}

/// The names of definitions that fit these names and patterns. Never empty: a pattern that fits none is kept, and no job has its name.
async fn resolve(state: &AppState, names: &str) -> Result<Vec<String>, Problem> {
    let known = known_names(state).await?;
    let mut resolved = BTreeSet::new();
    for name in names.split(',') {
        if name.contains('*') {
            resolved.extend(known.iter().filter(|known| matches(name, known)).cloned());
        } else if known.contains(name) {
            resolved.insert(name.to_owned());
        } else {
            let near = nearest(name, known.iter().map(String::as_str));
            let detail = format!("no definition and no job has the name \"{}\"", excerpt(name));
            let problem = Problem::new(ProblemCode::UnknownName, detail).field("?name");
            return Err(match near.is_empty() {
                true => problem.hint("GET /api/definitions lists the definitions; * stands for any text"),
                false => problem.near(near),
            });
        }
    }
    if resolved.is_empty() {
        resolved.insert(names.to_owned());
    }
    Ok(resolved.into_iter().collect())
}

/// Refuses a name that no definition and no job has. Patterns may fit none.
///
/// # Errors
/// `unknown_name` with similar names.
pub(crate) async fn check_names(state: &AppState, names: &[String]) -> Result<(), Problem> {
    for name in names.iter().filter(|name| !name.contains('*')) {
        resolve(state, name).await?;
    }
    Ok(())
}

/// Parses the revision in this query parameter.
///
/// # Errors
/// `invalid_query`.
pub(crate) fn revision(parameter: &str, text: &str) -> Result<Revision, Problem> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
    number.map(Revision).ok_or_else(|| {
        let shown_by = if parameter == "revision" { "a job" } else { "a plan" };
        invalid_query(parameter, &format!("it has 32 hexadecimal digits, as {shown_by} shows it"))
    })
}

fn outcomes(text: &str) -> Result<Vec<Outcome>, Problem> {
    let outcome = |name: &str| {
        Outcome::ALL.into_iter().find(|outcome| outcome.name() == name).ok_or_else(|| {
            let all = Outcome::ALL.map(Outcome::name).join(", ");
            invalid_query("outcome", &format!("there is no outcome \"{}\"", excerpt(name)))
                .hint(format!("the outcomes are {all}"))
        })
    };
    text.split(',').map(outcome).collect()
}

fn exit_code(text: &str) -> Result<i32, Problem> {
    text.parse().map_err(|_| invalid_query("exit_code", "it is a whole number"))
}

fn states(text: &str) -> Result<Vec<JobState>, Problem> {
    let state = |name: &str| {
        JobState::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| {
            let all = JobState::ALL.map(JobState::name).join(", ");
            Problem::new(ProblemCode::InvalidState, format!("there is no state \"{}\"", excerpt(name)))
                .field("?state")
                .hint(format!("the states are {all}"))
        })
    };
    text.split(',').map(state).collect()
}

/// Finds a worker by id or name: the present bearer of the name, else a former one.
///
/// # Errors
/// `invalid_query` if no worker was ever called so.
pub(crate) async fn worker_named(state: &AppState, text: String) -> Result<WorkerId, Problem> {
    if let Ok(id) = text.parse() {
        return Ok(WorkerId(id));
    }
    let unknown = format!("no worker was ever called \"{}\"", excerpt(&text));
    find_worker_named(state, text).await?.ok_or_else(|| {
        invalid_query("worker", &unknown).hint("give a name from GET /api/workers?all=1, or a number")
    })
}

/// Finds a worker by its name alone: the present bearer of the name, else a former one.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn find_worker_named(state: &AppState, name: String) -> Result<Option<WorkerId>, Problem> {
    let snapshot = state.services.engine.snapshot();
    if let Some(named) = snapshot.workers.iter().find(|worker| *worker.name == *name) {
        return Ok(Some(named.id));
    }
    state.read(move |archive| archive.worker_named(&name)).await
}

pub(crate) fn label(text: &str) -> Result<(String, String), Problem> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| invalid_query("label", "it is written name=value"))?;
    Ok((name.to_owned(), value.to_owned()))
}
