//! Retries by filters, in the order of the slots that the jobs work on.
//!
//! A list of jobs has the newest first, so the order needs all jobs of the filters before the first retry. A request reads them all only within
//! bounds: [`ORDERED_MAX`] jobs, found within [`SELECT_TIME_MAX`]. Of larger selections the newest jobs are retried first.

use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, Timestamp};
use tokio::time::Instant;

use super::retried::{Candidate, Done, ToRetry};
use super::{COUNT_SLICE, Detail, Operation, SLICE, TIME_MAX};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::store::JobFilter;

/// The order of retries: by slot, then by number. Jobs without a slot come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RetryKey {
    slot: i64,
    job: u64,
}

impl RetryKey {
    pub(super) fn new(slot: Option<Timestamp>, job: JobId) -> Self {
        Self { slot: slot.map_or(i64::MAX, |at| at.0), job: job.0 }
    }
}

/// The place at which a retry by filters goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetryPlace {
    /// It takes jobs below this number. In order: the jobs that it has made are not below it.
    before: JobId,
    /// The last job that was retried in order. Those up to it are done.
    done: Option<RetryKey>,
    /// It goes on in order, and not with the newest job.
    is_ordered: bool,
}

impl RetryPlace {
    fn write(&self) -> String {
        let RetryKey { slot, job } = self.done.unwrap_or(RetryKey { slot: 0, job: 0 });
        let numbers = [self.before.0, slot.cast_unsigned(), job, u64::from(self.is_ordered)];
        let mut bytes = [0; PLACE_BYTES];
        for (part, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_be_bytes());
        }
        cursor::encode(PLACES, bytes)
    }

    fn read(text: &str) -> Result<Self, Problem> {
        let bytes: [u8; PLACE_BYTES] = cursor::decode(PLACES, text)?;
        let mut numbers = [0; PLACE_BYTES / 8];
        for (number, part) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        let [before, slot, job, is_ordered] = numbers;
        let done = (job > 0).then_some(RetryKey { slot: slot.cast_signed(), job });
        Ok(Self { before: JobId(before), done, is_ordered: is_ordered > 0 })
    }
}

const PLACE_BYTES: usize = 32;

const PLACES: &[u8] = b"longshore retry cursor 1";

/// The jobs of a filter that are to be retried, in order.
#[derive(Debug, Default)]
struct Selection {
    candidates: Vec<Candidate>,
    /// All jobs of the filter are below this number.
    before: JobId,
    /// Counts the jobs that are left to their retries.
    counts: shapes::BulkResult,
}

impl Operation {
    /// Retries the jobs of a filter, each chain of retries once: in the order of their slots if they are few, else the newest first. It ends with a
    /// cursor if the time is up, or if a slice fails after others: the next request begins with that slice, and gets the error if it lasts.
    ///
    /// # Errors
    /// `invalid_cursor`, those of a read, and those that refuse all jobs.
    pub(super) async fn run_retry(
        self: &Arc<Self>,
        mut filter: JobFilter,
        cursor: Option<&str>,
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        let until = Instant::now() + TIME_MAX;
        let place = cursor.map(RetryPlace::read).transpose()?;
        filter.before = place.map(|place| place.before);
        let done =
            Done { repeated: self.retried_before(&filter).await?, until: place.and_then(|it| it.done) };
        let selection = match place {
            Some(RetryPlace { is_ordered: false, .. }) => None,
            _ => self.select(&filter, &done, until).await?,
        };
        result.ordered = Some(selection.is_some());
        let Some(selection) = selection else {
            filter.limit = SLICE;
            let next = self.run_newest_first(filter, &done, until, result).await?;
            let place = |before| RetryPlace { before, done: done.until, is_ordered: false };
            result.next = next.map(|before| place(before).write());
            return Ok(());
        };
        let before = place.map_or(selection.before, |place| place.before);
        let place = RetryPlace { before, done: done.until, is_ordered: true };
        if cursor.is_none() {
            // The first answer has them all.
            result.retried_before = selection.counts.retried_before;
            result.left_out = selection.counts.left_out;
        }
        self.retry_in_order(&selection.candidates, (&filter, place), until, result).await
    }

    async fn retry_in_order(
        self: &Arc<Self>,
        candidates: &[Candidate],
        (filter, mut place): (&JobFilter, RetryPlace),
        until: Instant,
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        let is_up = || Instant::now() >= until || self.state.services.shutdown.is_cancelled();
        for (index, slice) in candidates.chunks(SLICE).enumerate() {
            if index > 0 && is_up() {
                result.next = Some(place.write());
                return Ok(());
            }
            match self.retry_slice(slice, filter, result).await {
                Ok(()) => place.done = slice.last().map(Candidate::key),
                Err(problem) if result.matched == 0 => return Err(problem),
                Err(_) => {
                    result.next = Some(place.write());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn retry_slice(
        self: &Arc<Self>,
        slice: &[Candidate],
        filter: &JobFilter,
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        // Others may have retried some of them since they were selected.
        let ToRetry { chosen, left_out } = self.to_retry(slice.to_vec(), filter).await?;
        let count = chosen.len() as u64;
        let jobs = chosen.into_iter().map(|(_, job)| job).collect();
        self.apply(jobs, result, Detail::Counts).await?;
        result.matched += count;
        result.leave_out(left_out);
        Ok(())
    }

    /// The jobs of a filter that are to be retried and are not done, in order. None if they are too many, or if the time for reading is up.
    async fn select(
        &self,
        filter: &JobFilter,
        done: &Done,
        until: Instant,
    ) -> Result<Option<Selection>, Problem> {
        let until = until.min(Instant::now() + SELECT_TIME_MAX);
        let mut selection = Selection::default();
        let newest = done.repeated.first().copied();
        for slice in done.repeated.chunks(COUNT_SLICE) {
            let candidates = self.repeated_candidates(slice).await?;
            self.add(&mut selection, candidates, (filter, done)).await?;
            if selection.candidates.len() > ORDERED_MAX || Instant::now() >= until {
                return Ok(None);
            }
        }
        let mut page = JobFilter { limit: COUNT_SLICE, ..filter.clone() };
        loop {
            let wanted = page.clone();
            let rows = self.state.read(move |archive| archive.jobs(&wanted)).await?;
            let highest = rows.first().map(|row| row.job).max(newest);
            selection.before = selection.before.max(JobId(highest.map_or(0, |job| job.0.saturating_add(1))));
            let candidates = Candidate::of_rows(&rows, filter);
            self.add(&mut selection, candidates, (filter, done)).await?;
            // The time bounds further reads only.
            let next = rows.last().filter(|_| rows.len() == COUNT_SLICE);
            if selection.candidates.len() > ORDERED_MAX || (next.is_some() && Instant::now() >= until) {
                return Ok(None);
            }
            let Some(last) = next else { break };
            page.before = Some(last.job);
        }
        selection.candidates.sort_by_key(Candidate::key);
        selection.candidates.dedup_by_key(|candidate| candidate.job);
        Ok(Some(selection))
    }

    /// Adds those of some jobs that are to be retried and are not done.
    async fn add(
        &self,
        selection: &mut Selection,
        mut candidates: Vec<Candidate>,
        (filter, done): (&JobFilter, &Done),
    ) -> Result<(), Problem> {
        done.leave_out(&mut candidates);
        let ToRetry { chosen, left_out } = self.to_retry(candidates, filter).await?;
        selection.candidates.extend(chosen.into_iter().map(|(candidate, _)| candidate));
        selection.counts.leave_out(left_out);
        Ok(())
    }
}

/// Jobs that are retried in order: some hundred kilobytes.
const ORDERED_MAX: usize = 10_000;

/// The order is given up if it takes longer than this to read the selected jobs.
const SELECT_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::middleware::code::ProblemCode;

    fn key(slot: Option<i64>, job: u64) -> RetryKey {
        RetryKey::new(slot.map(Timestamp), JobId(job))
    }

    #[test]
    fn a_place_reads_back_and_the_cursor_of_a_list_is_none() {
        for (before, done, is_ordered) in [
            (900, None, true),
            (900, Some(key(Some(-5), 12)), true),
            (u64::MAX, Some(key(None, 7)), false),
            (3, None, false),
        ] {
            let place = RetryPlace { before: JobId(before), done, is_ordered };
            assert_eq!(RetryPlace::read(&place.write()).unwrap(), place);
        }
        let of_a_list = cursor::write(JobId(7));
        assert_eq!(RetryPlace::read(&of_a_list).unwrap_err().code(), ProblemCode::InvalidCursor);
    }

    #[test]
    fn the_oldest_slots_come_first_and_jobs_without_a_slot_last() {
        let mut keys = [key(Some(30), 1), key(None, 2), key(Some(10), 5), key(Some(20), 4), key(Some(10), 3)];
        keys.sort();
        assert_eq!(keys.map(|key| key.job), [3, 5, 4, 1, 2]);
    }
}
