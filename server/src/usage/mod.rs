//! Samples of running attempts, for people who watch them. They bypass the engine and the store. A restart of the server forgets them.
//! The totals of ended attempts are in the store.
//!
//! Each attempt has a series of bounded length. A longer life makes its points sparser, so that a series always spans all of it. Series
//! of ended attempts stay until others need their place.

mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{Fence, JobId, Now, Uptime, Usage, UsageSample};

use crate::logs::AttemptKey;
pub use series::Point;
use series::Series;

/// The series of all attempts that were sampled lately.
#[derive(Debug, Default)]
pub struct LiveUsage {
    table: Mutex<SeriesTable>,
}

#[derive(Debug, Default)]
struct SeriesTable {
    series: BTreeMap<AttemptKey, Series>,
    /// The same attempts by the time of their last sample.
    by_age: BTreeSet<(Uptime, AttemptKey)>,
}

impl LiveUsage {
    /// Adds samples of attempts. The caller has checked that the sending worker owns these attempts.
    pub fn record(&self, now: Now, samples: &[UsageSample]) {
        let mut table = self.table();
        for sample in samples {
            table.record(now, sample);
        }
    }

    /// The latest sample of an attempt.
    #[must_use]
    pub fn latest(&self, attempt: AttemptKey) -> Option<Usage> {
        self.table().series.get(&attempt).map(Series::latest)
    }

    /// The points of an attempt, the oldest first; none if it is unknown.
    #[must_use]
    pub fn points(&self, attempt: AttemptKey) -> Vec<Point> {
        self.table().series.get(&attempt).map(|series| series.points().to_vec()).unwrap_or_default()
    }

    /// The latest attempt of a job that was sampled, with a number that changes at each sample.
    #[must_use]
    pub fn version(&self, job: JobId) -> Option<(AttemptKey, u64)> {
        let of_job = AttemptKey { job, fence: Fence(0) }..=AttemptKey { job, fence: Fence(u64::MAX) };
        self.table().series.range(of_job).next_back().map(|(key, series)| (*key, series.version()))
    }

    fn table(&self) -> MutexGuard<'_, SeriesTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeriesTable {
    fn record(&mut self, now: Now, sample: &UsageSample) {
        let key = AttemptKey::from(sample.token);
        if !self.series.contains_key(&key) && !self.make_room(now.up) {
            return;
        }
        let series = self.series.entry(key).or_default();
        self.by_age.remove(&(series.sampled_at(), key));
        series.record(now, sample);
        self.by_age.insert((series.sampled_at(), key));
    }

    /// Makes room for one series. Returns false if all of them are being sampled.
    fn make_room(&mut self, now: Uptime) -> bool {
        if self.series.len() < SERIES_MAX {
            return true;
        }
        let stalest = self.by_age.first().copied().filter(|(at, _)| now.since(*at) >= STALE);
        if let Some((at, key)) = stalest {
            self.by_age.remove(&(at, key));
            self.series.remove(&key);
        }
        stalest.is_some()
    }
}

/// Attempts with a series at once. At [`series::POINTS_MAX`] points of 40 bytes they take 20 MB.
const SERIES_MAX: usize = 4_096;

/// A series without a sample for this long is of an ended attempt, or of a worker that is away: workers sample every few seconds.
const STALE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use protocol::{Nonce, Timestamp, Token};

    use super::*;

    fn at(second: u64) -> Now {
        Now { up: Uptime(second * 1_000_000_000), utc: Timestamp(second.cast_signed() * 1_000) }
    }

    fn sample(job: u64, cpu_ms: u64) -> UsageSample {
        let token = Token { job: JobId(job), fence: Fence(job), nonce: Nonce(1) };
        let usage = Usage { cpu_ms: Some(cpu_ms), ..Usage::default() };
        UsageSample { token, usage, memory_bytes: Some(job) }
    }

    fn key(job: u64) -> AttemptKey {
        AttemptKey { job: JobId(job), fence: Fence(job) }
    }

    #[test]
    fn the_latest_sample_counts_and_each_one_changes_the_version() {
        let live = LiveUsage::default();
        assert_eq!((live.latest(key(1)), live.version(JobId(1))), (None, None));
        live.record(at(1), &[sample(1, 10), sample(2, 5)]);
        let first = live.version(JobId(1));
        live.record(at(2), &[sample(1, 30)]);
        assert_eq!(live.latest(key(1)).and_then(|it| it.cpu_ms), Some(30));
        assert!(first.is_some() && live.version(JobId(1)) != first);
        let next = UsageSample { token: Token { fence: Fence(9), ..sample(1, 0).token }, ..sample(1, 1) };
        live.record(at(3), &[next]);
        let attempt = live.version(JobId(1)).map(|(key, _)| key.fence);
        assert_eq!(attempt, Some(Fence(9)), "the next attempt has a series of its own");
        assert_eq!(live.points(key(1)).iter().map(|it| it.cpu_ms).collect::<Vec<_>>(), [Some(10), Some(30)]);
        assert_eq!(live.points(key(3)), []);
    }

    #[test]
    fn a_full_table_takes_the_place_of_the_stalest_series_and_never_of_one_that_is_sampled() {
        let live = LiveUsage::default();
        let all: Vec<_> = (1..=SERIES_MAX as u64).map(|job| sample(job, 1)).collect();
        live.record(at(1), &all);
        live.record(at(30), &[sample(10_000, 1)]);
        assert_eq!(live.version(JobId(10_000)), None, "all others were sampled within the last minute");
        live.record(at(31), &all[1..]);
        live.record(at(62), &[sample(10_000, 1), sample(10_001, 1)]);
        assert_eq!(live.latest(key(1)), None, "it was the stalest");
        assert!(live.latest(key(10_000)).is_some() && live.latest(key(2)).is_some());
        assert_eq!(live.latest(key(10_001)), None);
        let table = live.table();
        assert_eq!((table.series.len(), table.by_age.len()), (SERIES_MAX, SERIES_MAX));
    }
}
