//! `GET /api/jobs/{id}/pipeline`, and `POST /api/jobs/{id}/pipeline/retry`: jobs that come after one another.

mod batch_options;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use protocol::JobId;
use scheduler::batches::BatchOptions;
use scheduler::dependencies::{Dependency, Predecessor, PredecessorId};
use scheduler::job::State as JobState;
use scheduler::new_jobs::NewJob;

use self::batch_options::options;
use crate::http::api::batches::submit_many::{Asked, answer, replayed};
use crate::http::api::batches::{last_batch_retry, turn};
use crate::http::api::jobs::find;
use crate::http::api::repeat::repeat_of;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::detached::run_detached;
use crate::http::middleware::problem::Problem;
use crate::http::present::presenter::dependency;
use crate::http::present::shapes;
use crate::http::request::body;
use crate::http::request::idempotency_key::{find_accepted, parse_key, submit_with_key};
use crate::http::request::job_request::JobRequest;
use crate::http::request::path::Id;
use crate::http::request::predecessors::once_each;
use crate::http::request::query::Query;
use crate::http::request::stored_size::StoredSize;
use crate::http::request::submit_params::{MembersChoice, RevisionChoice};
use crate::http::state::AppState;
use crate::store::{Archive, DependencyRecord, Pipeline, PipelineJob, RETRIES_FOLLOWED};

/// `GET /api/jobs/{id}/pipeline`
pub(crate) async fn show(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
) -> Result<Json<shapes::Pipeline>, Problem> {
    let pipeline = read(&state, JobId(id)).await?;
    let failed: Vec<JobId> =
        pipeline.jobs.iter().filter(|job| has_failed(job.state)).map(|job| job.job).collect();
    let retries = state.read(move |archive| archive.retries(&failed)).await?;
    Ok(Json(shapes::Pipeline {
        truncated: !pipeline.is_whole,
        jobs: pipeline.jobs.iter().map(|job| shown(job, retries.get(&job.job))).collect(),
    }))
}

fn shown(job: &PipelineJob, retry: Option<&(JobId, JobState)>) -> shapes::PipelineJob {
    shapes::PipelineJob {
        retried_as: retry.map(|(retry, _)| retry.0),
        retried_as_state: retry.map(|(_, state)| state.name().into()),
        id: job.job.0,
        name: job.definition.clone(),
        state: job.state.name().into(),
        retry_of: job.retry_of.map(|of| of.0),
        after: job.after.iter().map(dependency).collect(),
    }
}

/// The jobs around one; just this one if it has no dependencies.
async fn read(state: &AppState, id: JobId) -> Result<Pipeline, Problem> {
    let pipeline = state.read(move |archive| archive.pipeline(id, JOBS_MAX)).await?;
    if pipeline.jobs.is_empty() {
        // Tells a job that was removed from one that never was.
        find(state, id).await?;
    }
    Ok(pipeline)
}

/// `POST /api/jobs/{id}/pipeline/retry`: repeats the jobs of a pipeline that have not succeeded, in their order.
pub(crate) async fn retry(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    state.check_accepting()?;
    let (parts, body) = request.into_parts();
    let mut query = Query::of(&parts.uri)?;
    let revision = RevisionChoice::read(&mut query)?;
    query.finish()?;
    let (text, _held) = body::submission(&state.body_budget, &parts.headers, body).await?;
    if !text.is_empty() {
        return Err(Problem::new(ProblemCode::UnknownField, "this request has no body"));
    }
    let key = parse_key(&parts, &format!("pipeline {}", revision.target_text(id)), &text)?;
    let turn = turn(&state).await?;
    // The turn ends with the submission: a client that leaves before must not let the next retry repeat the same jobs.
    run_detached(async move {
        let answer = make(&state, JobId(id), revision, key).await;
        drop(turn);
        answer
    })
    .await
}

/// Makes the batch that repeats the jobs of a pipeline.
async fn make(
    state: &Arc<AppState>,
    id: JobId,
    revision: RevisionChoice,
    key: Option<(Arc<str>, u128)>,
) -> Result<Response, Problem> {
    let (jobs, options) = match repetitions(state, id, revision).await {
        Ok(repetitions) => repetitions,
        // An earlier request with this key may have made the jobs: nothing is left to repeat then.
        Err(refusal) => {
            return find_accepted(state, key, refusal).await.map(|holder| replayed(state, holder));
        }
    };
    let asked = Asked::new(jobs.len(), &jobs);
    answer(state, submit_with_key(state, jobs, Some(options), false, key).await?, &asked).await
}

/// New jobs for those of a pipeline that have not succeeded, and the options of their batch.
async fn repetitions(
    state: &Arc<AppState>,
    id: JobId,
    revision: RevisionChoice,
) -> Result<(Vec<NewJob>, BatchOptions), Problem> {
    let pipeline = read(state, id).await?;
    if !pipeline.is_whole {
        let detail = format!("the pipeline has more than {JOBS_MAX} jobs, or very many dependencies");
        return Err(Problem::new(ProblemCode::TooManyJobs, detail).hint("retry its jobs by themselves"));
    }
    let retries = retries(state, &pipeline.jobs).await?;
    let repeated = to_repeat(&pipeline.jobs, &retries);
    if repeated.is_empty() {
        return Err(nothing_to_repeat(id, &pipeline.jobs, &retries));
    }
    let mut jobs = Vec::with_capacity(repeated.len());
    let mut size = StoredSize::default();
    for job in &repeated {
        let (definition, new) =
            repeat_of(state, job.job, revision, MembersChoice::All, JobRequest::default()).await?;
        size.add(new.details.as_deref(), 1)?;
        jobs.push(NewJob { revision: definition.revision, after: after(job, &repeated, &retries), ..new });
    }
    Ok((jobs, options(state, &pipeline.jobs, &repeated).await?))
}

/// The refusal if no job can be repeated: all have succeeded or go on, or they come after a batch that has to be repeated before.
fn nothing_to_repeat(id: JobId, jobs: &[PipelineJob], retries: &Retries) -> Problem {
    let failed = jobs.iter().filter(|job| has_failed(job.state));
    let is_unmet = |on: &&DependencyRecord| {
        let has_other_end = |state: JobState| state.has_ended() && !on.requires.is_met_by(state);
        !retries.contains_key(&on.other) && on.state.is_some_and(has_other_end)
    };
    let batch = failed.flat_map(|job| &job.after).filter(is_unmet).find_map(|on| match on.other {
        PredecessorId::Batch(first) => Some(first),
        PredecessorId::Job(_) => None,
    });
    if let Some(first) = batch {
        let detail = format!("they come after batch {first}, which has not ended as they require");
        return Problem::new(ProblemCode::NotFinished, detail)
            .hint(format!("retry that batch first: longshore batch {first} retry"));
    }
    let retried = jobs.iter().filter_map(|job| Some((job.job, retries.get(&PredecessorId::Job(job.job))?)));
    // One that goes on says more than one that has succeeded.
    let detail = match retried.min_by_key(|(_, (_, state))| state.has_ended()) {
        Some((failed, (PredecessorId::Job(retry), state))) => {
            let end = if state.has_ended() { "has succeeded" } else { "has not ended" };
            format!("job {failed} was retried as job {retry}, which {end}; no other job is left to repeat")
        }
        _ => "no job of the pipeline has ended without success".to_owned(),
    };
    Problem::new(ProblemCode::NotFinished, detail).hint(format!("GET /api/jobs/{id}/pipeline shows its jobs"))
}

/// The retries that stand for jobs of a pipeline, and for batches that they come after, each with its state.
pub(crate) type Retries = BTreeMap<PredecessorId, (PredecessorId, JobState)>;

/// The latest retries of jobs and batches that have not succeeded, unless they have ended without success too.
async fn retries(state: &AppState, jobs: &[PipelineJob]) -> Result<Retries, Problem> {
    let failed = jobs.iter().filter(|job| has_failed(job.state)).map(|job| job.job);
    let mut retries = retries_of_batches(state, jobs).await?;
    retries.extend(retries_of_jobs(state, failed).await?);
    retries.retain(|_, (_, state)| !has_failed(*state));
    Ok(retries)
}

/// The last retry of each of these jobs that was retried: the retry of its retry, and so on.
pub(crate) async fn retries_of_jobs(
    state: &AppState,
    jobs: impl Iterator<Item = JobId>,
) -> Result<Retries, Problem> {
    let mut open: Vec<(JobId, JobId)> = jobs.map(|job| (job, job)).collect();
    let mut retries = Retries::new();
    for _ in 0..RETRIES_FOLLOWED {
        if open.is_empty() {
            break;
        }
        let asked: Vec<JobId> = open.iter().map(|(_, latest)| *latest).collect();
        let found = state.read(move |archive| archive.retries(&asked)).await?;
        open.retain_mut(|(job, latest)| match found.get(latest) {
            Some((retry, state)) => {
                retries.insert(PredecessorId::Job(*job), (PredecessorId::Job(*retry), *state));
                *latest = *retry;
                true
            }
            None => false,
        });
    }
    Ok(retries)
}

/// The latest retries of the batches that jobs of a pipeline come after and that have not succeeded.
async fn retries_of_batches(state: &AppState, jobs: &[PipelineJob]) -> Result<Retries, Problem> {
    let failed = jobs.iter().flat_map(|job| &job.after).filter(|on| on.state.is_some_and(has_failed));
    let failed: BTreeSet<PredecessorId> = failed.map(|on| on.other).collect();
    let read = move |archive: &dyn Archive| {
        let mut retries = Retries::new();
        for on in failed {
            if let PredecessorId::Batch(first) = on
                && let Some(retry) = last_batch_retry(archive, first)?
            {
                retries.insert(on, retry);
            }
        }
        Ok(retries)
    };
    state.read(read).await
}

fn has_failed(state: JobState) -> bool {
    state.has_ended() && state != JobState::Succeeded
}

/// The jobs that have not succeeded and were not retried, and those that came after them, such as an alarm or a clean-up. Without those that could
/// not start again: they come after a job or a batch that has ended otherwise than they require, and that was not retried.
fn to_repeat<'j>(jobs: &'j [PipelineJob], retries: &Retries) -> Vec<&'j PipelineJob> {
    let of_jobs = jobs.iter().map(|job| (PredecessorId::Job(job.job), job.state));
    let mut states: BTreeMap<PredecessorId, JobState> = of_jobs.collect();
    states.extend(retries.iter().map(|(on, (_, state))| (*on, *state)));
    let within = jobs.iter().filter_map(|job| job.retry_of);
    let retried: BTreeSet<JobId> = within.chain(retries.keys().filter_map(|on| on.job())).collect();
    let failed = |job: &&PipelineJob| has_failed(job.state) && !retried.contains(&job.job);
    let mut repeated: BTreeSet<JobId> = jobs.iter().filter(failed).map(|job| job.job).collect();
    while let added = set_off_by(jobs, &repeated, &retried)
        && !added.is_empty()
    {
        repeated.extend(added);
    }
    loop {
        let can_start = |job: &PipelineJob| {
            job.after.iter().all(|on| {
                let state = states.get(&on.other).copied().or(on.state);
                on.other.job().is_some_and(|job| repeated.contains(&job))
                    || state.is_some_and(|state| !state.has_ended() || on.requires.is_met_by(state))
            })
        };
        let has_cause = |job: &PipelineJob| has_failed(job.state) || comes_after(job, &repeated);
        let left = jobs.iter().filter(|job| repeated.contains(&job.job) && can_start(job) && has_cause(job));
        let left: BTreeSet<JobId> = left.map(|job| job.job).collect();
        if left.len() == repeated.len() {
            return jobs.iter().filter(|job| left.contains(&job.job)).collect();
        }
        repeated = left;
    }
}

/// Further jobs that were set off by one of the repeated jobs, such as its clean-up, and were not retried. One that has not ended yet goes on
/// beside its repetition: it belongs to the old step.
fn set_off_by(jobs: &[PipelineJob], repeated: &BTreeSet<JobId>, retried: &BTreeSet<JobId>) -> Vec<JobId> {
    let is_new = |job: &&PipelineJob| !repeated.contains(&job.job) && !retried.contains(&job.job);
    let was_started = |job: &&PipelineJob| !has_failed(job.state) && comes_after(job, repeated);
    jobs.iter().filter(is_new).filter(was_started).map(|job| job.job).collect()
}

fn comes_after(job: &PipelineJob, others: &BTreeSet<JobId>) -> bool {
    job.after.iter().filter_map(|on| on.other.job()).any(|on| others.contains(&on))
}

/// The dependencies of a repeated job: on the repetitions of jobs that are repeated as well, on retries, else on the jobs and batches themselves.
fn after(job: &PipelineJob, repeated: &[&PipelineJob], retries: &Retries) -> Vec<Dependency> {
    let on = |it: &DependencyRecord| {
        if let Some(at) = repeated.iter().position(|other| it.other == PredecessorId::Job(other.job)) {
            return Predecessor::Member(u32::try_from(at).unwrap_or(u32::MAX));
        }
        let retry = retries.get(&it.other).map(|(retry, state)| (*retry, Some(*state)));
        match retry.unwrap_or((it.other, it.state)) {
            (on, Some(state)) if state.has_ended() => Predecessor::Ended(on, state),
            (on, _) => Predecessor::Live(on),
        }
    };
    once_each(job.after.iter().map(|it| Dependency { on: on(it), requires: it.requires }))
}

/// Jobs of a pipeline that one answer shows.
const JOBS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use scheduler::dependencies::RequiredEnd;

    use super::*;

    const ON: fn(u64) -> PredecessorId = |job| PredecessorId::Job(JobId(job));

    fn job(number: u64, state: JobState, after: &[(u64, RequiredEnd)]) -> PipelineJob {
        let record = |(job, requires): &(u64, RequiredEnd)| DependencyRecord {
            other: ON(*job),
            name: "step".into(),
            requires: *requires,
            state: None,
        };
        let after = after.iter().map(record).collect();
        PipelineJob {
            job: JobId(number),
            definition: "step".into(),
            state,
            retry_of: None,
            batch: None,
            after,
        }
    }

    #[test]
    fn what_was_retried_is_not_repeated_again() {
        let first = job(1, JobState::Succeeded, &[]);
        let failed = job(2, JobState::Failed, &[(1, RequiredEnd::Success)]);
        let again =
            PipelineJob { retry_of: Some(JobId(2)), ..job(3, JobState::Lost, &[(1, RequiredEnd::Success)]) };
        let jobs = [first, failed, again];
        assert_eq!(to_repeat(&jobs, &Retries::new()).iter().map(|job| job.job.0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_retry_beside_the_pipeline_stands_for_its_job() {
        let jobs = [
            job(1, JobState::Failed, &[]),
            job(2, JobState::Cancelled, &[(1, RequiredEnd::Success)]),
            job(3, JobState::Succeeded, &[(1, RequiredEnd::Failure)]),
        ];
        let retries: Retries = [(ON(1), (ON(9), JobState::Succeeded))].into();
        let repeated = to_repeat(&jobs, &retries);
        assert_eq!(repeated.iter().map(|job| job.job.0).collect::<Vec<_>>(), [2], "its alarm stays");
        let on: Vec<_> = after(repeated[0], &repeated, &retries).into_iter().map(|it| it.on).collect();
        assert_eq!(on, [Predecessor::Ended(ON(9), JobState::Succeeded)]);
        let retries: Retries = [(ON(1), (ON(9), JobState::Running))].into();
        let repeated = to_repeat(&jobs, &retries);
        let on: Vec<_> = after(repeated[0], &repeated, &retries).into_iter().map(|it| it.on).collect();
        assert_eq!((repeated.len(), on), (1, vec![Predecessor::Live(ON(9))]));
    }

    #[test]
    fn a_job_after_a_failed_batch_is_repeated_after_the_retry_of_the_batch() {
        let batch = |first| PredecessorId::Batch(JobId(first));
        let mut report = job(1_001, JobState::Cancelled, &[(1, RequiredEnd::Success)]);
        (report.after[0].other, report.after[0].state) = (batch(1), Some(JobState::Failed));
        let jobs = [report];
        assert!(to_repeat(&jobs, &Retries::new()).is_empty(), "it could not start");
        let retries: Retries = [(batch(1), (batch(2_000), JobState::Running))].into();
        let repeated = to_repeat(&jobs, &retries);
        let on: Vec<_> = after(repeated[0], &repeated, &retries).into_iter().map(|it| it.on).collect();
        assert_eq!(on, [Predecessor::Live(batch(2_000))]);
    }

    #[test]
    fn what_failed_and_what_was_left_out_is_repeated() {
        let jobs = [
            job(1, JobState::Succeeded, &[]),
            job(2, JobState::Failed, &[(1, RequiredEnd::Success)]),
            job(3, JobState::Cancelled, &[(1, RequiredEnd::Success), (2, RequiredEnd::Success)]),
            job(4, JobState::Succeeded, &[(2, RequiredEnd::Failure)]),
            job(5, JobState::Cancelled, &[(1, RequiredEnd::Failure)]),
            job(6, JobState::Cancelled, &[(5, RequiredEnd::Any), (2, RequiredEnd::Any)]),
            job(7, JobState::Succeeded, &[(5, RequiredEnd::Any)]),
            job(8, JobState::Cancelled, &[(4, RequiredEnd::Failure)]),
            job(9, JobState::Running, &[(2, RequiredEnd::Any)]),
            job(10, JobState::Running, &[(1, RequiredEnd::Success)]),
        ];
        let repeated = to_repeat(&jobs, &Retries::new());
        let numbers: Vec<_> = repeated.iter().map(|job| job.job.0).collect();
        assert_eq!(numbers, [2, 3, 4, 6, 8, 9], "the alarm and the clean-up come after the repetition");
        let after: Vec<_> =
            after(repeated[1], &repeated, &Retries::new()).into_iter().map(|it| it.on).collect();
        assert_eq!(after, [Predecessor::Live(ON(1)), Predecessor::Member(0)]);
    }
}
