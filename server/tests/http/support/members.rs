//! Reads about members of batches and about the jobs of slots, from the jobs of the stand-in.

use longshore_server::positions::Positions;
use longshore_server::store::{
    Archive as _, BatchFailures, BatchRow, FailedFires, FailureStatus, FireFilter, JobFilter, JobRow,
    MemberArchive, MemberData, ReadError, SlotArchive, SlotEnd, SlotJob, UnsuccessfulMember,
    UnsuccessfulMembers,
};
use protocol::{JobId, Timestamp};
use scheduler::job::State;
use scheduler::schedules::FireVerdict;

use super::engine::StandInEngine;

impl MemberArchive for StandInEngine {
    fn batch_with_key(&self, _: &str) -> Result<Option<JobId>, ReadError> {
        Ok(None)
    }

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

impl SlotArchive for StandInEngine {
    fn slot_ends(&self, jobs: &[JobId]) -> Result<Vec<SlotEnd>, ReadError> {
        let slot_job = |job: JobId| {
            let row = self.job(job)?.map(|record| record.row);
            Ok::<_, ReadError>(row.map(|row| {
                let attempt = row.attempt.as_ref();
                let (outcome, exit_code) =
                    (attempt.and_then(|it| it.outcome), attempt.and_then(|it| it.exit_code));
                (SlotJob { job, state: row.state, outcome, exit_code }, row.failure)
            }))
        };
        let end = |job: &JobId| {
            let own = slot_job(*job)?;
            let retry = match self.last_retry(*job)? {
                Some((retry, _)) => slot_job(retry)?,
                None => None,
            };
            let is_unresolved =
                retry.as_ref().or(own.as_ref()).is_some_and(|(_, it)| *it == FailureStatus::Unresolved);
            Ok(SlotEnd { own: own.map(|it| it.0), retry: retry.map(|it| it.0), is_unresolved })
        };
        jobs.iter().map(end).collect()
    }

    fn slots(&self, jobs: &[JobId]) -> Result<Vec<Option<Timestamp>>, ReadError> {
        let slot = |job: &JobId| Ok(self.job(*job)?.and_then(|record| record.row.slot).map(|slot| slot.at));
        jobs.iter().map(slot).collect()
    }

    /// Searches one row at a time.
    fn failed_fires(&self, of: &str, filter: &FireFilter, limit: usize) -> Result<FailedFires, ReadError> {
        let mut rows = self.fires(of, filter, 2)?;
        let searched = rows.first().map(|row| row.id).filter(|_| rows.len() == 2 && limit > 0);
        rows.truncate(1);
        let made = |verdict: FireVerdict| verdict.job().filter(|_| verdict.reason().is_none());
        let jobs: Vec<JobId> = rows.iter().filter_map(|it| made(it.row.verdict)).collect();
        let ends = self.slot_ends(&jobs)?;
        rows.retain(|_| ends.iter().any(|end| end.is_unresolved));
        Ok(FailedFires { rows, searched })
    }
}
