//! The members of a batch that have not succeeded, each with the job that stands for it: the last of its retries, else the member itself.

use protocol::JobId;
use scheduler::batches::{BY_BATCH, MAX_FAILURES_REACHED, STOPPED, is_failure};
use scheduler::dependencies::{COMES_AFTER, PredecessorId, SKIPPED};
use scheduler::job::State as JobState;
use scheduler::step::Note;

use super::order::After;
use crate::http::api::bulk::retried::RETRIES_FOLLOWED;
use crate::store::{Archive, DEPENDENCIES_SHOWN, JobFilter, JobRecord, ReadError};

/// The states of members that may be repeated.
pub(super) const STATES: [JobState; 4] =
    [JobState::Failed, JobState::Expired, JobState::Lost, JobState::Cancelled];

/// The treatment of members that somebody cancelled, one by one or with the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// They are left out, and counted.
    LeftOut,
    /// They are repeated like those that failed.
    Repeated,
}

/// Jobs that stand for members, newest member first.
pub(super) struct Page {
    pub(super) jobs: Vec<(JobRecord, Vec<After>)>,
    /// The last member of the page, unless it is the last page.
    pub(super) last: Option<JobId>,
    /// The members that are left out because somebody cancelled them.
    pub(super) cancelled: u64,
}

/// Reads a page of members that have not succeeded, with the jobs that stand for them and have not succeeded either.
pub(super) fn page(archive: &dyn Archive, filter: &JobFilter, choice: Cancelled) -> Result<Page, ReadError> {
    let rows = archive.jobs(filter)?;
    let last = rows.last().filter(|_| rows.len() == filter.limit).map(|row| row.job);
    let (mut jobs, mut cancelled) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        let job = last_retry(archive, row.job)?.map_or(row.job, |(job, _)| job);
        let Some(record) = archive.job(job)? else { continue };
        if !is_to_repeat(&record) {
            let is_cancelled = was_cancelled(&record);
            if !is_cancelled || choice == Cancelled::LeftOut {
                cancelled += u64::from(is_cancelled);
                continue;
            }
        }
        let after = predecessors(archive, &record)?;
        jobs.push((record, after));
    }
    Ok(Page { jobs, last, cancelled })
}

/// The job failed, or did not start because others failed: those of its batch, or those before it. Not if somebody cancelled it.
fn is_to_repeat(record: &JobRecord) -> bool {
    let state = record.row.state;
    is_failure(state) || (state == JobState::Cancelled && (ended_with_batch(record) || is_left_out(record)))
}

/// Somebody cancelled the job, or its batch. Skipped jobs were not: nothing went wrong with them. Neither were those that another job has
/// replaced, by its unique key or its limit: to repeat one would cancel the newer job.
fn was_cancelled(record: &JobRecord) -> bool {
    let is_other = [SKIPPED, "cancelled by job ", "cancelled: replaced by "];
    record.row.state == JobState::Cancelled && !is_other.iter().any(|it| record.row.reason.starts_with(it))
}

/// The job was cancelled because `max_failures` of its batch was reached.
fn ended_with_batch(record: &JobRecord) -> bool {
    let reason = record.row.reason.as_str();
    let says_so = [MAX_FAILURES_REACHED, STOPPED].contains(&reason)
        || reason.strip_prefix("cancelled by ").is_some_and(|by| by.starts_with(BY_BATCH));
    let by_somebody = |note: &Note| matches!(note, Note::CancelRequested { by } if by.as_str() != BY_BATCH);
    says_so && !record.notes.iter().any(|(_, note)| by_somebody(note))
}

/// The job was cancelled because a job or a batch that it comes after did not end as required. Skipped jobs have another reason.
fn is_left_out(record: &JobRecord) -> bool {
    let reason = record.row.reason.as_str();
    ["job ", "batch "].iter().any(|on| reason.starts_with(on)) && reason.contains(COMES_AFTER)
}

/// The jobs and batches that a job comes after; a retry stands for one that has not succeeded.
fn predecessors(archive: &dyn Archive, record: &JobRecord) -> Result<Vec<After>, ReadError> {
    let mut found = record.after.clone();
    if found.len() >= DEPENDENCIES_SHOWN {
        let whole = archive.pipeline(record.row.job, 1)?.jobs.into_iter().find(|it| it.job == record.row.job);
        found = whole.map_or(found, |it| it.after);
    }
    let after = found.into_iter().map(|it| {
        let has_failed = it.state.is_some_and(|state| state.has_ended() && state != JobState::Succeeded);
        let retry = match it.other {
            _ if !has_failed => None,
            PredecessorId::Job(job) => {
                last_retry(archive, job)?.map(|(job, state)| (PredecessorId::Job(job), state))
            }
            PredecessorId::Batch(first) => last_batch_retry(archive, first)?,
        };
        let (on, state) = retry.map_or((it.other, it.state), |(on, state)| (on, Some(state)));
        Ok(After { on, state, requires: it.requires })
    });
    after.collect()
}

/// The last of the retries of a batch and of its retries, with its state.
pub(crate) fn last_batch_retry(
    archive: &dyn Archive,
    first: JobId,
) -> Result<Option<(PredecessorId, JobState)>, ReadError> {
    let mut last = None;
    let mut next = archive.batch(first)?.and_then(|batch| batch.retried_as);
    for _ in 0..RETRIES_FOLLOWED {
        let Some(batch) = next.map(|first| archive.batch(first)).transpose()?.flatten() else { break };
        last = Some((PredecessorId::Batch(batch.first), batch.state.as_job()));
        next = batch.retried_as;
    }
    Ok(last)
}

/// The last of the retries of a job and of its retries, with its state.
fn last_retry(archive: &dyn Archive, job: JobId) -> Result<Option<(JobId, JobState)>, ReadError> {
    let mut last = None;
    for _ in 0..RETRIES_FOLLOWED {
        let latest = last.map_or(job, |(job, _)| job);
        let Some(next) = archive.retries(&[latest])?.remove(&latest) else { break };
        last = Some(next);
    }
    Ok(last)
}
