//! The job that repeats an ended one.

use std::sync::Arc;

use protocol::JobId;
use protocol::container::Overrides;
use scheduler::batches::BatchMember;
use scheduler::definition::Definition;
use scheduler::details::JobDetails;
use scheduler::new_jobs::NewJob;
use scheduler::params::Field;
use scheduler::placement::narrowing::Narrowing;
use scheduler::step::Rejection;

use crate::auth::actor::Actor;
use crate::catalogue::Definitions;
use crate::config::jobs_file;
use crate::http::api::admission;
use crate::http::api::jobs::find;
use crate::http::api::members;
use crate::http::api::worker_names;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::cleared_fields::ClearedFields;
use crate::http::request::definition;
use crate::http::request::job_request::{self, JobRequest};
use crate::http::request::submission::{self, merge_overrides, merge_pairs};
use crate::http::request::submit_params::{MembersChoice, RevisionChoice};
use crate::http::state::AppState;
use crate::params::{self, Checker};
use crate::store::{BatchRow, JobRow, RepeatableJob, is_about_slots};

/// The job that repeats an ended one, with `changes` laid over what they do not clear.
pub(crate) async fn repeat_of(
    state: &Arc<AppState>,
    id: JobId,
    revision: RevisionChoice,
    members: MembersChoice,
    changes: JobRequest<'_>,
) -> Result<(Arc<Definition>, NewJob), Problem> {
    let record = RepeatableJob::from(find(state, id).await?);
    let actor = Actor::current();
    actor.check_scope(&record.row.definition)?;
    let job_state = record.row.state;
    if !job_state.has_ended() {
        return Err(Problem::new(ProblemCode::NotFinished, format!("job {id} is {}", job_state.name()))
            .state(job_state.name())
            .hint("wait until it has ended, or cancel it first; for another job like it, submit one"));
    }
    let definitions = state.services.catalogue.current();
    let definition = definition_of(state, &definitions, &record.row, revision).await?;
    let batch = match record.row.batch.filter(|_| own_position(&record).is_empty()) {
        Some(first) => state.read(move |archive| archive.batch(first)).await?,
        None => None,
    };
    let members = members::repeated(state, &record.row, members).await?;
    if let Some(present) =
        definitions.find(&record.row.definition).filter(|_| revision == RevisionChoice::Original)
    {
        submission::check_changes(&present.definition, &changes)?;
    }
    let checker = Checker::new(&definition.submission.params);
    // The workers that the earlier job asked for may be gone: it is repeated as it was.
    worker_names::check(state, &changes.job).await?;
    let job = repetition(record, &definition, &checker, batch.as_ref(), changes)?;
    admission::check_policy(&definitions, &definition, job.timeout, actor.role)?;
    Ok((definition, NewJob { members, ..job }))
}

/// The definition of the job that repeats this one.
///
/// # Errors
/// It is disabled or gone, and those of a read.
pub(crate) async fn definition_of(
    state: &Arc<AppState>,
    definitions: &Definitions,
    row: &JobRow,
    revision: RevisionChoice,
) -> Result<Arc<Definition>, Problem> {
    // A disabled definition disables its older revisions, too.
    if definitions.find(&row.definition).is_some_and(|entry| !entry.definition.enabled) {
        return Err(Rejection::Disabled.into());
    }
    match revision {
        RevisionChoice::Original => revision_of(state, row).await,
        RevisionChoice::Current => match definition::find(definitions, &row.definition) {
            Ok(entry) => Ok(Arc::clone(&entry.definition)),
            Err(problem) => Err(problem.hint("?revision=original runs it as it was when the job was made")),
        },
    }
}

/// The job that repeats this one, of this definition. `batch` is the batch of which the job is a member.
///
/// # Errors
/// The definition does not take its parameters or the changes.
pub(crate) fn repetition(
    record: RepeatableJob,
    definition: &Definition,
    checker: &Checker<'_>,
    batch: Option<&BatchRow>,
    changes: JobRequest<'_>,
) -> Result<NewJob, Problem> {
    let position = position(&record, batch);
    let RepeatableJob { row, overrides, params } = record;
    let mut details = JobDetails { overrides, labels: row.labels, ..JobDetails::default() };
    let cleared = changes.cleared.clone();
    let slot: Vec<_> = variables_of(&details.overrides, is_about_slots);
    cleared.clear(&mut details.overrides);
    if cleared.clears(Field::Labels) {
        details.labels.clear();
    }
    merge_pairs(&mut details.overrides.environment, position);
    // It works on the same slot, and does not take it: each slot has one job.
    merge_pairs(&mut details.overrides.environment, slot);
    let kept = params.into_iter().map(|param| (param.name, params::to_json(&param.value)));
    let (changes, resolved) =
        submission::resolve_over_earlier_params(kept.collect(), changes, definition, checker)?;
    details.params = resolved;
    if let Some(changes) = changes.details {
        merge_overrides(&mut details.overrides, changes.overrides);
        merge_pairs(&mut details.labels, changes.labels);
        job_request::check_totals(&details)?;
    }
    job_request::check_size(&details.effective_overrides())?;
    submission::check_program(definition, Some(&details))?;
    let has_details = !details.is_empty();
    Ok(NewJob {
        priority: changes.priority.or((!cleared.clears(Field::Priority)).then_some(row.priority)),
        timeout: changes.timeout.or(row.timeout.filter(|_| !cleared.clears(Field::Timeout))),
        retry_of: Some(row.job),
        run_at: changes.run_at,
        unique_key: changes.unique_key,
        narrowing: narrowing(row.narrowing.as_deref(), changes.narrowing.as_deref(), &cleared),
        after: changes.after,
        details: has_details.then(|| Box::new(details)),
        ..NewJob::default()
    })
}

/// The workers that the repeated job asks for: those of the request, or else those of the earlier job.
fn narrowing(
    earlier: Option<&Narrowing>,
    changes: Option<&Narrowing>,
    cleared: &ClearedFields,
) -> Option<Arc<Narrowing>> {
    let none = Narrowing::default();
    let (earlier, changes) = (earlier.unwrap_or(&none), changes.unwrap_or(&none));
    let workers = match () {
        () if !changes.workers.is_empty() => &changes.workers[..],
        () if cleared.clears(Field::Workers) => &[],
        () => &earlier.workers,
    };
    let requires = match () {
        () if !changes.requires.is_empty() => &changes.requires[..],
        () if cleared.clears(Field::Requires) => &[],
        () => &earlier.requires,
    };
    Narrowing::asked(workers.to_vec(), requires.to_vec())
}

/// Finds the revision of a job, and registers it with the engine if jobs.yaml has changed since.
async fn revision_of(state: &Arc<AppState>, row: &JobRow) -> Result<Arc<Definition>, Problem> {
    let revision = row.revision;
    if let Some(entry) = state.services.catalogue.current().find_revision(revision) {
        return Ok(entry.definition.clone());
    }
    let stored = state.read(move |archive| archive.definition(revision)).await?;
    let definition = stored.and_then(|stored| jobs_file::parse_stored(&stored).ok()).map(Arc::new);
    let definition = definition.ok_or_else(|| {
        Problem::new(
            ProblemCode::RevisionGone,
            format!("\"{}\" as it was for job {} is gone", row.definition, row.job),
        )
        .hint("make a new job of the definition as it is now")
    })?;
    state.services.engine.learn(definition.clone())?;
    Ok(definition)
}

/// The variables that told a job its position among the members of a batch: those of the member that it repeats itself, if it does so, else its own.
fn position(record: &RepeatableJob, batch: Option<&BatchRow>) -> Vec<(String, String)> {
    let own = own_position(record);
    match batch.filter(|batch| own.is_empty() && record.row.batch == Some(batch.first)) {
        Some(batch) => {
            let index = u32::try_from(record.row.job.0.saturating_sub(batch.first.0)).unwrap_or(u32::MAX);
            BatchMember { batch: batch.first, index, size: batch.count }.variables()
        }
        None => own,
    }
}

/// The position that was given to a job which repeats a member.
fn own_position(record: &RepeatableJob) -> Vec<(String, String)> {
    variables_of(&record.overrides, |name| BatchMember::VARIABLES.contains(&name))
}

/// The variables with such names.
fn variables_of(overrides: &Overrides, is_one: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    overrides.environment.iter().filter(|(name, _)| is_one(name)).cloned().collect()
}
