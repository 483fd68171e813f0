//! The jobs that a retry by filters takes: a job that was retried is left to its retry, unless this request made that.

use std::sync::Arc;

use protocol::JobId;
use scheduler::job::State as JobState;

use super::Operation;
use super::keys::{key_of, prefix_of};
use crate::http::middleware::problem::Problem;
use crate::store::{Archive, JobFilter, RETRIES_FOLLOWED, ReadError};

impl Operation {
    /// The jobs of a filter that this request has retried when it was sent before, the newest first. Only unresolved failures need them: such
    /// a filter does not select its own jobs again. Nothing for other filters.
    pub(super) async fn retried_before(&self, filter: &JobFilter) -> Result<Vec<JobId>, Problem> {
        let Some((key, _)) = self.key.as_ref().filter(|_| filter.unresolved) else { return Ok(Vec::new()) };
        let prefix = prefix_of(key);
        let text = prefix.clone();
        let keys = self.state.read(move |archive| archive.keys_with(&text)).await?;
        let jobs = keys.iter().filter_map(|key| key.strip_prefix(&prefix)?.parse().ok().map(JobId));
        let mut jobs: Vec<JobId> =
            jobs.filter(|job| filter.before.is_none_or(|before| *job < before)).collect();
        jobs.sort_unstable_by_key(|job| std::cmp::Reverse(*job));
        Ok(jobs)
    }

    /// The jobs to retry for these jobs of a filter. A retry stands for its job from then on, unless this request made it when it was sent
    /// before. A filter finds a retry that has failed too by itself, but for one by batch: a retry is no member, so it is looked for here.
    pub(super) async fn to_retry(&self, jobs: Vec<JobId>, filter: &JobFilter) -> Result<Vec<JobId>, Problem> {
        let key = self.key.as_ref().map(|(key, _)| Arc::clone(key));
        let followed = filter.batch.map(|_| filter.states.clone()).unwrap_or_default();
        let read = move |archive: &dyn Archive| {
            let chosen = jobs.iter().map(|job| latest(archive, *job, key.as_deref(), &followed));
            chosen.filter_map(Result::transpose).collect()
        };
        self.state.read(read).await
    }
}

/// The job, or the last one of its retries that all ended in one of these states; none if a retry stands for it.
fn latest(
    archive: &dyn Archive,
    job: JobId,
    key: Option<&str>,
    followed: &[JobState],
) -> Result<Option<JobId>, ReadError> {
    let mut latest = job;
    for _ in 0..RETRIES_FOLLOWED {
        let Some((retry, state)) = archive.retries(&[latest])?.remove(&latest) else {
            return Ok(Some(latest));
        };
        let is_by_this_request = match key {
            Some(key) => archive.key(&key_of(key, latest))?.0.is_some(),
            None => false,
        };
        if is_by_this_request {
            return Ok(Some(latest));
        }
        if !followed.contains(&state) {
            return Ok(None);
        }
        latest = retry;
    }
    Ok(None)
}
