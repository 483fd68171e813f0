//! Batches as they are stored. What they count is counted anew from the rows of their members.

use std::collections::BTreeMap;

use protocol::JobId;
use scheduler::batches::{LiveBatch, NewBatch, is_failure};
use scheduler::step::Change;

use super::Row;

/// The batches that have not ended, by their first members.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches(BTreeMap<JobId, NewBatch>);

type Rows = [Option<Row>];

impl Batches {
    /// A batch is new, or has ended.
    ///
    /// # Errors
    /// The counts of an ended batch are not those of its members.
    pub(super) fn take(&mut self, change: &Change, rows: &Rows) -> Result<(), String> {
        match change {
            Change::BatchAdded(batch) => {
                self.0.insert(batch.first, batch.clone());
            }
            Change::BatchEnded { first, failed, .. } => {
                let batch =
                    self.0.remove(first).ok_or_else(|| format!("there is no batch of job {first}"))?;
                let counted = count(&batch, rows);
                if counted.live > 0 || counted.failed != *failed {
                    return Err(format!(
                        "the batch of job {first} ended with {failed} failures: {counted:?}"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Forgets a batch that was never finished.
    pub(super) fn forget(&mut self, first: JobId) {
        self.0.remove(&first);
    }

    /// The batches as a start takes them in.
    pub(super) fn live(&self, rows: &Rows) -> impl Iterator<Item = LiveBatch> {
        self.0.values().map(|batch| count(batch, rows))
    }

    /// The job belongs to a batch in which as many failed as may.
    pub(super) fn is_stopped(&self, job: JobId, rows: &Rows) -> bool {
        let batch = self.0.range(..=job).next_back().map(|(_, batch)| batch);
        let batch = batch.filter(|batch| batch.options.max_failures.is_some());
        batch.map(|batch| count(batch, rows)).is_some_and(|it| job < it.end() && it.is_stopped())
    }
}

impl Batches {
    /// The batch of a job and its limit, if it limits how many of its members hold a worker.
    pub(super) fn limit_of(&self, job: JobId) -> Option<(JobId, usize)> {
        let (first, batch) = self.0.range(..=job).next_back()?;
        let is_member = job.0 < first.0 + u64::from(batch.count);
        Some((*first, batch.options.concurrency.filter(|_| is_member)? as usize))
    }

    /// A member may hold a worker: fewer others of its batch do than may.
    ///
    /// # Errors
    /// As many do.
    pub(super) fn check_permit(&self, job: JobId, rows: &Rows) -> Result<(), String> {
        let Some((first, limit)) = self.limit_of(job) else { return Ok(()) };
        let members = rows.iter().flatten().filter(|row| row.limited_by == Some((first, limit)));
        let holding = members.filter(|row| row.current().is_some()).count();
        match holding >= limit {
            true => Err(format!("I14 job {job} is one too many of {limit} of the batch of job {first}")),
            false => Ok(()),
        }
    }
}

fn count(batch: &NewBatch, rows: &Rows) -> LiveBatch {
    let from = batch.first.0 as usize - 1;
    let members = rows.iter().skip(from).take(batch.count as usize).flatten();
    let (mut live, mut failed) = (0, 0);
    for row in members {
        live += u32::from(!row.state.has_ended());
        failed += u32::from(is_failure(row.state));
    }
    LiveBatch { live, failed, ..LiveBatch::new(batch) }
}
