//! The options of the batch that repeats jobs of a pipeline: it has the name and the limits of the batch that these jobs are members of, as if
//! that batch were retried.

use protocol::JobId;
use scheduler::batches::{BatchOptions, BatchUnique};
use scheduler::limits::rules::OnDuplicate;

use crate::http::api::batches::unique_of;
use crate::http::middleware::problem::Problem;
use crate::http::state::AppState;
use crate::store::{PipelineJob, RETRIES_FOLLOWED};

/// The options of the new batch: those of the batch whose members it repeats. It is a retry of that batch if the pipeline has all members;
/// else others may have failed as well, and the new batch does not stand for the old one.
pub(super) async fn options(
    state: &AppState,
    jobs: &[PipelineJob],
    repeated: &[&PipelineJob],
) -> Result<BatchOptions, Problem> {
    let Some(first) = batch_of_all(jobs, repeated) else { return Ok(BatchOptions::default()) };
    let Some(batch) = state.read(move |archive| archive.batch(first)).await? else {
        return Ok(BatchOptions::default());
    };
    let members = jobs.iter().filter(|job| job.batch == Some(first)).count();
    let is_whole = u32::try_from(members).is_ok_and(|members| members == batch.count);
    // A batch of some members does not stand for the old one, and must not replace a newer one either.
    let of_part = |unique| BatchUnique { on_duplicate: OnDuplicate::Reject, ..unique };
    let unique = unique_of(&batch);
    Ok(BatchOptions {
        unique: if is_whole { unique } else { unique.map(of_part) },
        name: batch.name,
        max_failures: batch.max_failures,
        concurrency: batch.concurrency,
        retry_of: is_whole.then_some(first),
    })
}

/// The batch that all repeated jobs belong to; one that was retried by itself belongs to that of the job before it.
fn batch_of_all(jobs: &[PipelineJob], repeated: &[&PipelineJob]) -> Option<JobId> {
    let batch_of = |job: &PipelineJob| {
        let before = |job: &&PipelineJob| jobs.iter().find(|it| Some(it.job) == job.retry_of);
        std::iter::successors(Some(job), before).take(RETRIES_FOLLOWED).find_map(|job| job.batch)
    };
    let first = batch_of(repeated.first()?)?;
    repeated.iter().all(|job| batch_of(job) == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use scheduler::job::State as JobState;

    use super::*;

    #[test]
    fn the_repeated_jobs_have_one_batch_if_those_before_their_retries_have_it() {
        let member = |number| PipelineJob { batch: Some(JobId(1)), ..job(number) };
        let again = PipelineJob { retry_of: Some(JobId(2)), ..job(9) };
        let other = PipelineJob { batch: Some(JobId(4)), ..job(4) };
        let jobs = [member(1), member(2), again, other, job(5)];
        let batch_of = |numbers: &[usize]| {
            batch_of_all(&jobs, &numbers.iter().map(|number| &jobs[*number]).collect::<Vec<_>>())
        };
        assert_eq!(batch_of(&[0, 2]), Some(JobId(1)));
        assert_eq!(batch_of(&[1, 3]), None);
        assert_eq!(batch_of(&[4]), None);
    }

    fn job(number: u64) -> PipelineJob {
        let (definition, state) = ("step".to_owned(), JobState::Failed);
        PipelineJob { job: JobId(number), definition, state, retry_of: None, batch: None, after: Vec::new() }
    }
}
