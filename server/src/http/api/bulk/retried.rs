//! The jobs that a retry by filters takes: a job that was retried is left to its retry, unless this request made that.

use std::sync::Arc;

use protocol::{JobId, Timestamp};
use scheduler::job::State as JobState;

use super::Operation;
use super::in_order::RetryKey;
use super::keys::{key_of, prefix_of};
use crate::auth::actor::Actor;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::store::{Archive, JobFilter, JobRow, RETRIES_FOLLOWED, ReadError, RunOnRole};

/// A job that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) job: JobId,
    retry_of: Option<JobId>,
    slot: Option<Timestamp>,
    /// The caller may act on it.
    is_in_scope: bool,
}

impl Candidate {
    /// The jobs of a page of a filter.
    pub(super) fn of_rows(rows: &[JobRow], filter: &JobFilter) -> Vec<Self> {
        let actor = Actor::current();
        let candidate = |row: &JobRow| Self {
            job: row.job,
            retry_of: row.retry_of,
            slot: row.slot.as_ref().map(|slot| slot.at),
            is_in_scope: actor.scope.includes(&row.definition),
        };
        rows.iter().filter(|row| !Self::is_member_to_leave(row, filter)).map(candidate).collect()
    }

    /// A retry repeats the parents of members, unless the members of one are asked for.
    pub(super) fn is_member_to_leave(row: &JobRow, filter: &JobFilter) -> bool {
        filter.parent.is_none() && matches!(row.run_on_role, RunOnRole::Member(_))
    }

    pub(super) fn key(&self) -> RetryKey {
        RetryKey::new(self.slot, self.job)
    }
}

/// The jobs that a request or an earlier one of the same key has done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Jobs that this request has retried when it was sent before, the newest first. The answer names their retries again.
    pub(super) repeated: Vec<JobId>,
    /// Jobs up to this place were done in order by requests that this one continues.
    pub(super) until: Option<RetryKey>,
}

impl Done {
    /// Removes the jobs that requests have done which this one continues.
    pub(super) fn leave_out(&self, candidates: &mut Vec<Candidate>) {
        candidates.retain(|candidate| Some(candidate.key()) > self.until);
    }
}

/// The jobs of a filter that are retried, and those that are not.
#[derive(Debug, Default)]
pub(super) struct ToRetry {
    /// The jobs that are retried, in the order of the filter's, with the job to retry for each: itself, or a retry of it.
    pub(super) chosen: Vec<(Candidate, JobId)>,
    /// The jobs that are left to their retries.
    pub(super) left_out: Vec<shapes::RetriedBefore>,
}

/// The decision about a job of the filter.
enum Choice {
    /// It retries this job: the one of the filter, or a retry of it.
    Retry(JobId),
    /// It leaves the job to its last retry, which is in this state.
    LeftTo(JobId, JobState),
    /// This request made the job when it was sent before.
    Made,
}

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

    /// These jobs, which this request has retried when it was sent before, with their slots.
    pub(super) async fn repeated_candidates(&self, jobs: &[JobId]) -> Result<Vec<Candidate>, Problem> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let asked = jobs.to_vec();
        let slots = self.state.read(move |archive| archive.slots(&asked)).await?;
        let candidate = |(job, slot): (&JobId, Option<Timestamp>)| Candidate {
            job: *job,
            retry_of: None,
            slot,
            is_in_scope: true,
        };
        Ok(jobs.iter().zip(slots).map(candidate).collect())
    }

    /// The jobs to retry for these jobs of a filter. A retry stands for its job from then on, unless this request made it when it was sent
    /// before. A filter finds a retry that has failed too by itself, but for one by batch: a retry is no member, so it is looked for here.
    pub(super) async fn to_retry(
        &self,
        jobs: Vec<Candidate>,
        filter: &JobFilter,
    ) -> Result<ToRetry, Problem> {
        let key = self.key.as_ref().map(|(key, _)| Arc::clone(key));
        let followed = filter.batch.map(|_| filter.states.clone()).unwrap_or_default();
        let read = move |archive: &dyn Archive| {
            let mut found = ToRetry::default();
            for candidate in jobs {
                match choose(archive, candidate, key.as_deref(), &followed)? {
                    Choice::Retry(job) => found.chosen.push((candidate, job)),
                    // A token does not learn of the retries of jobs that it may not act on.
                    Choice::LeftTo(retry, state) if candidate.is_in_scope => {
                        found.left_out.push(shapes::RetriedBefore {
                            job: candidate.job.0,
                            retry: retry.0,
                            state: state.name().into(),
                        })
                    }
                    Choice::LeftTo(..) | Choice::Made => {}
                }
            }
            Ok(found)
        };
        self.state.read(read).await
    }
}

/// The choice for a job. A retry is followed if it ended in one of these states.
fn choose(
    archive: &dyn Archive,
    Candidate { job, retry_of, .. }: Candidate,
    key: Option<&str>,
    followed: &[JobState],
) -> Result<Choice, ReadError> {
    let made_for = |job: JobId| -> Result<Option<JobId>, ReadError> {
        let Some(key) = key else { return Ok(None) };
        Ok(archive.key(&key_of(key, job))?.0.map(|holder| holder.job))
    };
    if let Some(earlier) = retry_of
        && made_for(earlier)? == Some(job)
    {
        return Ok(Choice::Made);
    }
    let (mut last, mut left_to) = (job, None);
    for turn in 1..=RETRIES_FOLLOWED {
        let Some((retry, state)) = archive.retries(&[last])?.remove(&last) else { break };
        // A repetition of the request answers as before.
        if made_for(last)?.is_some() {
            break;
        }
        if left_to.is_some() || turn == RETRIES_FOLLOWED || !followed.contains(&state) {
            left_to = Some(state);
        }
        last = retry;
    }
    Ok(left_to.map_or(Choice::Retry(last), |state| Choice::LeftTo(last, state)))
}
