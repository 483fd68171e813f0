//! Retries by filters, in the order of the slots that the jobs work on.
//!
//! A list of jobs has the newest first, so a request reads all jobs that its filters select and keeps the first ones in order. Both are bounded:
//! it keeps [`SELECTED_MAX`] jobs, and if the time for reading is up, it leaves the newer jobs for later and begins with the older ones.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, Timestamp};
use tokio::time::Instant;

use super::retried::{Candidate, ToRetry};
use super::{COUNT_SLICE, Detail, Operation, SLICE, TIME_MAX};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::cursor;
use crate::store::{JobFilter, JobRow, RunOnRole};

/// The order of retries: by slot, then by number. Jobs without a slot come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RetryKey {
    slot: i64,
    job: u64,
}

impl RetryKey {
    fn new(slot: Option<Timestamp>, job: JobId) -> Self {
        Self { slot: slot.map_or(i64::MAX, |at| at.0), job: job.0 }
    }
}

/// The place at which a retry by filters goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RetryPlace {
    /// Jobs from this number on are newer than the operation; 0 before its first read.
    top: u64,
    /// Jobs up to this number are done.
    floor: u64,
    /// Jobs from this number on are left for later; 0 if none are.
    ceiling: u64,
    /// The last job that was done of those between.
    after: Option<RetryKey>,
}

impl RetryPlace {
    fn write(&self) -> String {
        let RetryKey { slot, job } = self.after.unwrap_or(RetryKey { slot: i64::MIN, job: 0 });
        let numbers = [self.top, self.floor, self.ceiling, slot.cast_unsigned(), job];
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
        let [top, floor, ceiling, slot, job] = numbers;
        let after = (job > 0).then_some(RetryKey { slot: slot.cast_signed(), job });
        Ok(Self { top, floor, ceiling, after })
    }

    /// The jobs between are below this number, if it is known.
    fn upper(&self) -> Option<u64> {
        [self.ceiling, self.top].into_iter().find(|number| *number > 0)
    }

    /// Goes on with the jobs that were left for later. False if there are none.
    fn rise(&mut self) -> bool {
        let next = self.ceiling;
        (self.floor, self.ceiling, self.after) = (next.saturating_sub(1).max(self.floor), 0, None);
        next > 0
    }
}

const PLACE_BYTES: usize = 40;

const PLACES: &[u8] = b"longshore retry cursor 1";

/// The first jobs in order of those that filters select.
#[derive(Debug, Default)]
struct FirstInOrder {
    /// The last of them is on top.
    kept: BinaryHeap<(RetryKey, Candidate)>,
    /// Others come after them.
    has_more: bool,
}

impl FirstInOrder {
    fn add(&mut self, key: RetryKey, candidate: Candidate, kept_max: usize) {
        self.kept.push((key, candidate));
        if self.kept.len() > kept_max {
            self.kept.pop();
            self.has_more = true;
        }
    }
}

/// The rest of an operation after some jobs.
enum Progress {
    /// The request goes on with others.
    More,
    /// The next request goes on.
    TimeUp,
    /// No job is left.
    Done,
}

impl Operation {
    /// Retries the jobs of a filter in the order of their slots, each chain of retries once, until all are done, the time is up, or a slice
    /// fails after others: the next request begins with that slice, and gets the error if it lasts.
    ///
    /// # Errors
    /// `invalid_cursor`, those of a read, and those that refuse all jobs.
    pub(super) async fn run_retry(
        self: &Arc<Self>,
        filter: JobFilter,
        cursor: Option<&str>,
        result: &mut shapes::BulkResult,
    ) -> Result<(), Problem> {
        let until = Instant::now() + TIME_MAX;
        let mut place = cursor.map_or_else(|| Ok(RetryPlace::default()), RetryPlace::read)?;
        loop {
            match self.retry_first(&filter, &mut place, until, result).await {
                Ok(Progress::More) => continue,
                Ok(Progress::Done) => {}
                Err(problem) if result.matched == 0 => return Err(problem),
                Ok(Progress::TimeUp) | Err(_) => result.next = Some(place.write()),
            }
            return Ok(());
        }
    }

    /// Retries the first jobs behind a place, and moves it behind them.
    async fn retry_first(
        self: &Arc<Self>,
        filter: &JobFilter,
        place: &mut RetryPlace,
        until: Instant,
        result: &mut shapes::BulkResult,
    ) -> Result<Progress, Problem> {
        let is_up = || Instant::now() >= until || self.state.services.shutdown.is_cancelled();
        let go_on = || if is_up() { Progress::TimeUp } else { Progress::More };
        let Some(FirstInOrder { kept, has_more }) = self.select(filter, place).await? else {
            // The newer jobs are left for later.
            return Ok(go_on());
        };
        let jobs = kept.into_sorted_vec();
        let mut left = jobs.len();
        for slice in jobs.chunks(SLICE) {
            let candidates = slice.iter().map(|(_, candidate)| *candidate).collect();
            let ToRetry { chosen, left_out } = self.to_retry(candidates, filter).await?;
            let count = chosen.len() as u64;
            self.apply(chosen, result, Detail::Counts).await?;
            result.matched += count;
            result.leave_out(left_out);
            place.after = slice.last().map(|(key, _)| *key);
            left -= slice.len();
            if is_up() && left > 0 {
                return Ok(Progress::TimeUp);
            }
        }
        if !has_more && !place.rise() {
            return Ok(Progress::Done);
        }
        Ok(go_on())
    }

    /// The first jobs of a filter behind a place, in order. None if the time for reading was up: the place leaves out the newer ones then.
    async fn select(
        &self,
        filter: &JobFilter,
        place: &mut RetryPlace,
    ) -> Result<Option<FirstInOrder>, Problem> {
        let until = Instant::now() + SELECT_TIME_MAX;
        let mut page = JobFilter { limit: COUNT_SLICE, ..filter.clone() };
        page.after = page.after.max(Some(JobId(place.floor)));
        page.before = place.upper().map(JobId);
        let mut first = FirstInOrder::default();
        let repeated = self.retried_before(&page).await?;
        let newest_repeated = repeated.iter().map(|(job, _)| job.0).max();
        for (job, slot) in repeated {
            let key = RetryKey::new(slot, job);
            if Some(key) > place.after {
                first.add(key, Candidate { job, retry_of: None }, SELECTED_MAX);
            }
        }
        loop {
            let wanted = page.clone();
            let rows = self.state.read(move |archive| archive.jobs(&wanted)).await?;
            if place.top == 0 {
                let newest = rows.first().map(|row| row.job.0).max(newest_repeated);
                place.top = newest.map_or(1, |newest| newest.saturating_add(1));
            }
            // A retry repeats the parents of members, unless the members of one are asked for.
            let is_left_out =
                |row: &&JobRow| filter.parent.is_none() && matches!(row.run_on_role, RunOnRole::Member(_));
            for row in rows.iter().filter(|row| !is_left_out(row)) {
                let key = RetryKey::new(row.slot.as_ref().map(|slot| slot.at), row.job);
                if Some(key) > place.after {
                    let candidate = Candidate { job: row.job, retry_of: row.retry_of };
                    first.add(key, candidate, SELECTED_MAX);
                }
            }
            let Some(last) = rows.last().filter(|_| rows.len() == COUNT_SLICE) else {
                return Ok(Some(first));
            };
            page.before = Some(last.job);
            if Instant::now() >= until {
                (place.ceiling, place.after) = (last.job.0, None);
                return Ok(None);
            }
        }
    }
}

/// Jobs that a request keeps in order at once: some hundred kilobytes.
const SELECTED_MAX: usize = 10_000;

/// A request reads for so long before it leaves the newer jobs for later.
const SELECT_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::middleware::code::Code;

    fn key(slot: Option<i64>, job: u64) -> RetryKey {
        RetryKey::new(slot.map(Timestamp), JobId(job))
    }

    #[test]
    fn a_place_reads_back_and_the_cursor_of_a_list_is_none() {
        for place in [
            RetryPlace::default(),
            RetryPlace { top: 900, floor: 3, ceiling: 700, after: Some(key(Some(-5), 12)) },
            RetryPlace { top: u64::MAX, floor: 0, ceiling: 0, after: Some(key(None, 7)) },
        ] {
            assert_eq!(RetryPlace::read(&place.write()).unwrap(), place);
        }
        let of_a_list = cursor::write(JobId(7));
        assert_eq!(RetryPlace::read(&of_a_list).unwrap_err().code(), Code::InvalidCursor);
    }

    #[test]
    fn the_oldest_slots_are_kept_and_jobs_without_a_slot_come_last() {
        let mut first = FirstInOrder::default();
        for (slot, job) in [(Some(30), 1), (None, 2), (Some(10), 3), (Some(20), 4), (Some(10), 5), (None, 1)]
        {
            first.add(key(slot, job), Candidate { job: JobId(job), retry_of: None }, 5);
        }
        assert!(first.has_more);
        let kept = first.kept.into_sorted_vec();
        let jobs: Vec<u64> = kept.into_iter().map(|(_, candidate)| candidate.job.0).collect();
        assert_eq!(jobs, [3, 5, 4, 1, 1], "and not job 2, which has no slot");
    }

    #[test]
    fn newer_jobs_follow_once_the_older_ones_are_done() {
        let mut place = RetryPlace { top: 900, floor: 0, ceiling: 700, after: Some(key(None, 650)) };
        assert_eq!(place.upper(), Some(700));
        assert!(place.rise());
        assert_eq!(place, RetryPlace { top: 900, floor: 699, ceiling: 0, after: None });
        assert_eq!(place.upper(), Some(900));
        assert!(!place.rise());
        assert_eq!(RetryPlace::default().upper(), None);
    }
}
