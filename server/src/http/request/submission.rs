//! Completes a parsed request by its definition: refuses what the definition does not allow, resolves the parameters, and lays overrides
//! over earlier ones.

use protocol::container::{Overrides, PROGRAM_BYTES_MAX};
use scheduler::definition::Definition;
use scheduler::dependencies::RequiredEnd;
use scheduler::details::JobDetails;
use scheduler::input::JobUpdate;
use scheduler::new_jobs::NewJob;
use scheduler::params::{Field, JobParams, SubmissionRules};
use serde_json::Value;

use super::cleared_fields::ClearedFields;
use super::job_request::{self, JobRequest};
use super::query::{invalid_query, nearest};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{FAULTS_MAX, Problem};
use crate::http::present::shapes::Fault;
use crate::params::{Checker, ParamFault};

/// Makes the job of a request for this definition.
///
/// # Errors
/// All faults: fields that the definition does not allow, and faults of parameters.
pub(crate) fn complete(
    request: JobRequest<'_>,
    definition: &Definition,
    checker: &Checker<'_>,
) -> Result<NewJob, Problem> {
    let JobRequest { mut job, params, after_entries, .. } = request;
    job.revision = definition.revision;
    if job.unique_key.is_some() && definition.limits.unique.is_none() {
        return Err(no_unique_key());
    }
    let rules = &definition.submission;
    if rules.is_default() && params.is_empty() {
        check_program(definition, job.details.as_deref())?;
        return Ok(job);
    }
    let mut faults = not_allowed(rules, &job, &params, &after_entries, &ClearedFields::default());
    // Parameters that are not allowed are not judged as well.
    let may_have_params = params.is_empty() || !faults.iter().any(|(_, fault)| fault.field == "params");
    match checker.resolve(&params) {
        Ok(resolved) if !resolved.is_empty() => {
            job.details.get_or_insert_default().params = resolved;
        }
        Ok(_) => {}
        Err(wrong) if may_have_params => faults.extend(wrong.into_iter().map(fault_of)),
        Err(_) => {}
    }
    faults.truncate(FAULTS_MAX);
    if !faults.is_empty() {
        return Err(Problem::faults(faults));
    }
    if let Some(details) = &job.details {
        job_request::check_size(&details.effective_overrides())?;
    }
    check_program(definition, job.details.as_deref())?;
    Ok(job)
}

/// Checks the first word of the command line if a parameter or an argument gives it. That of the definition was checked at load.
///
/// # Errors
/// `too_long`.
pub(crate) fn check_program(definition: &Definition, details: Option<&JobDetails>) -> Result<(), Problem> {
    let Some(details) = details.filter(|_| definition.container.first_word(&[]).is_none()) else {
        return Ok(());
    };
    let (field, word) = match (details.params.args.first(), details.overrides.args.first()) {
        (Some(word), _) => ("params", word),
        (None, Some(word)) => ("args[0]", word),
        (None, None) => return Ok(()),
    };
    if word.len() <= PROGRAM_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{} bytes are too long for a program (max {PROGRAM_BYTES_MAX})", word.len());
    let hint =
        "the definition has no command, so the first argument may be the program; give it an entrypoint";
    Err(Problem::new(ProblemCode::TooLong, detail).field(field).hint(hint))
}

/// Checks a change of a job that waits: it may set what a submission may set.
///
/// # Errors
/// `override_not_allowed`.
pub(crate) fn check_update(definition: &Definition, update: &JobUpdate) -> Result<(), Problem> {
    let job = NewJob { priority: update.priority, run_at: update.run_at, ..NewJob::default() };
    let faults = not_allowed(&definition.submission, &job, &[], &[], &ClearedFields::default());
    if faults.is_empty() { Ok(()) } else { Err(Problem::faults(faults)) }
}

/// Checks the changes of a retry by a definition that is not the one of its revision: the present one decides what a caller may set, too.
///
/// # Errors
/// `override_not_allowed`.
pub(crate) fn check_changes(definition: &Definition, changes: &JobRequest<'_>) -> Result<(), Problem> {
    let JobRequest { job, params, after_entries, cleared, .. } = changes;
    let faults = not_allowed(&definition.submission, job, params, after_entries, cleared);
    if faults.is_empty() { Ok(()) } else { Err(Problem::faults(faults)) }
}

/// Replaces values of earlier parameters (of a retried job or of a schedule) by those of the request, and resolves all for this definition.
///
/// # Errors
/// As [`complete`]; the earlier values count as allowed.
pub(crate) fn resolve_over_earlier_params(
    earlier: Vec<(String, Value)>,
    changes: JobRequest<'_>,
    definition: &Definition,
    checker: &Checker<'_>,
) -> Result<(NewJob, JobParams), Problem> {
    let JobRequest { job, params, after_entries, cleared, .. } = changes;
    if job.unique_key.is_some() && definition.limits.unique.is_none() {
        return Err(no_unique_key());
    }
    let declared = &definition.submission.params;
    let has_earlier = |name: &str| earlier.iter().any(|(it, _)| it == name);
    if let Some(name) = cleared.unknown_param(|name| has_earlier(name) || declared.find(name).is_some()) {
        let names = earlier.iter().map(|(it, _)| &**it).chain(declared.declared.iter().map(|it| &*it.name));
        let detail = format!("the job has no parameter \"{}\"", excerpt(name));
        return Err(invalid_query("clear", &detail).near(nearest(name, names)));
    }
    let mut faults = not_allowed(&definition.submission, &job, &params, &after_entries, &cleared);
    let mut values = earlier;
    values.retain(|(name, _)| {
        !cleared.clears_param(name) && !params.iter().any(|(changed, _)| changed == name)
    });
    values.extend(params);
    let resolved = checker.resolve(&values).unwrap_or_else(|wrong| {
        faults.extend(wrong.into_iter().map(fault_of));
        JobParams::default()
    });
    faults.truncate(FAULTS_MAX);
    if faults.is_empty() { Ok((job, resolved)) } else { Err(Problem::faults(faults)) }
}

/// Merges later overrides into earlier ones: variables by name, arguments and input as a whole. Empty arguments keep the earlier ones, unless
/// [`ClearedFields`] has removed them before.
pub(crate) fn merge_overrides(overrides: &mut Overrides, changes: Overrides) {
    merge_pairs(&mut overrides.environment, changes.environment);
    if !changes.args.is_empty() {
        overrides.args = changes.args;
    }
    if changes.input.is_some() {
        overrides.input = changes.input;
    }
}

/// Replaces the values of names that are there, and adds the others.
pub(crate) fn merge_pairs(pairs: &mut Vec<(String, String)>, changes: Vec<(String, String)>) {
    for (name, value) in changes {
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => pairs.push((name, value)),
        }
    }
}

fn no_unique_key() -> Problem {
    Problem::new(
        ProblemCode::OverrideNotAllowed,
        "the definition has no \"unique\", so its jobs have no keys",
    )
    .field("unique_key")
    .hint("leave the field out, or add \"unique\" to the definition")
}

/// A fault for each field that the definition does not allow. `after` names jobs by number in `job`, and entries of the same request
/// in `after_entries`. Leaving out an earlier value in `cleared` sets the field, too.
fn not_allowed(
    rules: &SubmissionRules,
    job: &NewJob,
    params: &[(String, Value)],
    after_entries: &[(String, RequiredEnd)],
    cleared: &ClearedFields,
) -> Vec<(ProblemCode, Fault)> {
    let Some(allow) = &rules.allow else { return Vec::new() };
    let none = JobDetails::default();
    let JobDetails { overrides, labels, .. } = job.details.as_deref().unwrap_or(&none);
    let narrowing = job.narrowing.as_deref();
    let is_given = |field: Field| match field {
        Field::After => !job.after.is_empty() || !after_entries.is_empty(),
        Field::Args => !overrides.args.is_empty(),
        Field::Environment => !overrides.environment.is_empty(),
        Field::Input => overrides.input.is_some(),
        Field::Labels => !labels.is_empty(),
        Field::Params => !params.is_empty(),
        Field::Priority => job.priority.is_some(),
        Field::RunAt => job.run_at.is_some(),
        Field::Timeout => job.timeout.is_some(),
        Field::UniqueKey => job.unique_key.is_some(),
        Field::Workers => narrowing.is_some_and(|narrowing| !narrowing.workers.is_empty()),
        Field::Requires => narrowing.is_some_and(|narrowing| !narrowing.requires.is_empty()),
    };
    let hint = match allow.is_empty() {
        true => "its jobs run as they are defined; leave the field out".to_owned(),
        false => {
            format!("it allows {}", allow.iter().map(|field| field.name()).collect::<Vec<_>>().join(", "))
        }
    };
    let refused = Field::ALL
        .into_iter()
        .filter(|field| (is_given(*field) || cleared.touches(*field)) && !allow.contains(field));
    refused
        .map(|field| {
            let fault = Fault {
                code: ProblemCode::OverrideNotAllowed.name().into(),
                field: field.name().to_owned(),
                detail: format!("the definition does not allow a submission to set {}", field.name()),
                hint: Some(hint.clone()),
            };
            (ProblemCode::OverrideNotAllowed, fault)
        })
        .collect()
}

fn fault_of(ParamFault { name, detail, hint }: ParamFault) -> (ProblemCode, Fault) {
    let field = format!("params.{name}");
    (
        ProblemCode::InvalidParam,
        Fault { code: ProblemCode::InvalidParam.name().into(), field, detail, hint: Some(hint) },
    )
}
