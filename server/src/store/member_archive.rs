//! Reads about members of batches: their positions, and what a retry of a batch and the latest attempts need.

use protocol::JobId;
use protocol::container::Overrides;
use scheduler::job::State;
use scheduler::params::JobParam;

use super::{BatchFailures, BatchRow, DependencyRecord, JobRecord, JobRow, ReadError};
use crate::positions::Positions;

/// The part of the read side for members of batches.
pub trait MemberArchive {
    /// The batch that has a unique key: one that has not ended, that no other has replaced, and whose members are made.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batch_with_key(&self, key: &str) -> Result<Option<JobId>, ReadError>;

    /// The first of these positions that no member of a batch has, or had before retention deleted it. Of a batch that repeats another one only
    /// positions by themselves are looked for, not ranges: its members have some of the positions of the other one.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unknown_position(&self, batch: &BatchRow, positions: &[Positions]) -> Result<Option<u32>, ReadError>;

    /// The last of the retries of a job and of its retries, at most [`RETRIES_FOLLOWED`], with its state.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_retry(&self, job: JobId) -> Result<Option<(JobId, State)>, ReadError>;

    /// The members of a batch that ended without success, the newest first, of those below `before`: at most `limit`, and fewer if their
    /// inputs are long.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unsuccessful_members(
        &self,
        batch: JobId,
        before: Option<JobId>,
        limit: usize,
        data: MemberData,
    ) -> Result<UnsuccessfulMembers, ReadError>;

    /// The members of a batch that failed, expired or were lost: the first ones, at most `limit`, and all of them by outcome. Reads them all.
    ///
    /// # Errors
    /// The store cannot be read.
    fn batch_failures(&self, first: JobId, limit: usize) -> Result<BatchFailures, ReadError>;

    /// The first members of a batch that neither have ended nor are on a worker, at most `limit`, in order.
    ///
    /// # Errors
    /// The store cannot be read.
    fn waiting_members(&self, batch: &BatchRow, limit: usize) -> Result<Vec<JobId>, ReadError>;

    /// In the place of each member of a batch the last of its retries, if it has any. It has the position of the member.
    ///
    /// # Errors
    /// The store cannot be read.
    fn latest_attempts(&self, members: Vec<JobRow>) -> Result<Vec<JobRow>, ReadError>;
}

/// An ended job with what a repetition takes over from it.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatableJob {
    /// Its row, with labels, workers and role. The slot is left out of a member that was read with others.
    pub row: JobRow,
    /// Its environment, arguments and input beside its definition.
    pub overrides: Overrides,
    /// Its parameters.
    pub params: Vec<JobParam>,
}

impl From<JobRecord> for RepeatableJob {
    fn from(JobRecord { row, overrides, params, .. }: JobRecord) -> Self {
        Self { row, overrides, params }
    }
}

/// A member of a batch that has not succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsuccessfulMember {
    /// The member.
    pub member: JobId,
    /// The job that stands for it, in whichever state: the last of its retries, else the member itself.
    pub job: RepeatableJob,
    /// The jobs and batches that this job came after.
    pub after: Vec<DependencyRecord>,
    /// Of a cancelled job: the requesters of its cancel.
    pub cancelled_by: Vec<String>,
}

/// Members of a batch that have not succeeded, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnsuccessfulMembers {
    /// The members. Those of which nothing is kept are left out.
    pub members: Vec<UnsuccessfulMember>,
    /// The last one that was read, if there may be more.
    pub last: Option<JobId>,
}

/// The part of the members' data that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberData {
    /// The rows with overrides and parameters.
    Whole,
    /// No overrides and parameters.
    WithoutOverrides,
}

/// A retry of a retry of a job, and so on, is followed so often.
pub const RETRIES_FOLLOWED: usize = 100;
