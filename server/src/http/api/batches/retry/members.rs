//! The members of a batch that have not succeeded, each with the job that stands for it: the last of its retries, else the member itself.

use protocol::JobId;
use scheduler::batches::BY_BATCH;
use scheduler::dependencies::PredecessorId;
use scheduler::job::State as JobState;

use super::order::After;
use crate::cancel_cause::CancelCause;
use crate::store::{
    Archive, DependencyRecord, JobRow, MemberData, RETRIES_FOLLOWED, ReadError, RepeatableJob,
    UnsuccessfulMember, UnsuccessfulMembers,
};

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
    pub(super) jobs: Vec<(RepeatableJob, Vec<After>)>,
    /// The last member of the page, unless it is the last page.
    pub(super) last: Option<JobId>,
    /// The members that are left out because somebody cancelled them.
    pub(super) cancelled: u64,
}

/// Reads a page of members that have not succeeded below `before`, with the jobs that stand for them and have not succeeded either.
pub(super) fn page(
    archive: &dyn Archive,
    batch: JobId,
    before: Option<JobId>,
    data: MemberData,
    choice: Cancelled,
) -> Result<Page, ReadError> {
    let UnsuccessfulMembers { members, last } = archive.unsuccessful_members(batch, before, PAGE, data)?;
    let (mut jobs, mut cancelled) = (Vec::with_capacity(members.len()), 0);
    for UnsuccessfulMember { job, after, cancelled_by, .. } in members {
        if !is_to_repeat(&job.row, &cancelled_by) {
            let is_cancelled = was_cancelled(&job.row);
            if !is_cancelled || choice == Cancelled::LeftOut {
                cancelled += u64::from(is_cancelled);
                continue;
            }
        }
        let after = predecessors(archive, after)?;
        jobs.push((job, after));
    }
    Ok(Page { jobs, last, cancelled })
}

/// The job failed, or did not start because others failed: those of its batch, or those before it. Not if somebody cancelled it.
fn is_to_repeat(row: &JobRow, cancelled_by: &[String]) -> bool {
    match row.state {
        JobState::Cancelled => match CancelCause::of(&row.reason) {
            CancelCause::MaxFailures => cancelled_by.iter().all(|by| by == BY_BATCH),
            CancelCause::Predecessor => true,
            CancelCause::Skipped | CancelCause::Replaced | CancelCause::Request => false,
        },
        state => state.is_failure(),
    }
}

/// Somebody cancelled the job, or its batch. Skipped jobs were not: nothing went wrong with them. Neither were those that another job has
/// replaced, by its unique key or its limit: to repeat one would cancel the newer job.
fn was_cancelled(row: &JobRow) -> bool {
    let is_other = matches!(CancelCause::of(&row.reason), CancelCause::Skipped | CancelCause::Replaced);
    row.state == JobState::Cancelled && !is_other
}

/// The jobs and batches that a job comes after; a retry stands for one that has not succeeded.
fn predecessors(archive: &dyn Archive, after: Vec<DependencyRecord>) -> Result<Vec<After>, ReadError> {
    let after = after.into_iter().map(|it| {
        let has_failed = it.state.is_some_and(|state| state.has_ended() && state != JobState::Succeeded);
        let retry = match it.other {
            _ if !has_failed => None,
            PredecessorId::Job(job) => {
                archive.last_retry(job)?.map(|(job, state)| (PredecessorId::Job(job), state))
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

/// Members that are read at once.
const PAGE: usize = 1_000;
