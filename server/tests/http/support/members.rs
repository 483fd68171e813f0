//! Reads about members of batches, from the jobs of the stand-in.

use longshore_server::positions::Positions;
use longshore_server::store::{
    Archive as _, BatchFailures, BatchRow, JobFilter, JobRow, MemberArchive, MemberData, ReadError,
    UnsuccessfulMember, UnsuccessfulMembers,
};
use protocol::JobId;
use scheduler::job::State;

use super::engine::StandInEngine;

impl MemberArchive for StandInEngine {
    fn batch_failures(&self, _: JobId, _: usize) -> Result<BatchFailures, ReadError> {
        Ok(BatchFailures::default())
    }

    fn waiting_members(&self, _: &BatchRow, _: usize) -> Result<Vec<JobId>, ReadError> {
        Ok(Vec::new())
    }

    fn unknown_position(&self, _: &BatchRow, _: &[Positions]) -> Result<Option<u32>, ReadError> {
        Ok(None)
    }

    fn last_retry(&self, job: JobId) -> Result<Option<(JobId, State)>, ReadError> {
        let retry = |of: JobId| Ok::<_, ReadError>(self.retries(&[of])?.remove(&of));
        let mut last = retry(job)?;
        while let Some((of, _)) = last
            && let Some(later) = retry(of)?
        {
            last = Some(later);
        }
        Ok(last)
    }

    fn latest_attempts(&self, members: Vec<JobRow>) -> Result<Vec<JobRow>, ReadError> {
        Ok(members)
    }

    fn unsuccessful_members(
        &self,
        batch: JobId,
        before: Option<JobId>,
        limit: usize,
        _: MemberData,
    ) -> Result<UnsuccessfulMembers, ReadError> {
        let states = vec![State::Failed, State::Expired, State::Lost, State::Cancelled];
        let rows =
            self.jobs(&JobFilter { batch: Some(batch), states, before, limit, ..JobFilter::default() })?;
        let last = rows.last().filter(|_| rows.len() == limit).map(|row| row.job);
        let mut members = Vec::new();
        for row in rows {
            let job = self.last_retry(row.job)?.map_or(row.job, |(job, _)| job);
            let Some(record) = self.job(job)? else { continue };
            let (after, cancelled_by) = (record.after.clone(), Vec::new());
            members.push(UnsuccessfulMember { member: row.job, job: record.into(), after, cancelled_by });
        }
        Ok(UnsuccessfulMembers { members, last })
    }
}
