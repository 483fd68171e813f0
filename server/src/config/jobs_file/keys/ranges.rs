//! Ranges of numbers and durations in jobs.yaml.

use std::time::Duration;

/// Both ends included.
#[derive(Clone, Copy, Debug)]
pub(in crate::config::jobs_file) struct Range {
    pub(in crate::config::jobs_file) from: i64,
    pub(in crate::config::jobs_file) to: i64,
}

pub(in crate::config::jobs_file) const fn range(from: i64, to: i64) -> Range {
    Range { from, to }
}

pub(in crate::config::jobs_file) const RETRIES: Range = range(0, 100);
pub(in crate::config::jobs_file) const PRIORITIES: Range = range(-100, 100);
/// The weight of a preference.
pub(in crate::config::jobs_file) const WEIGHTS: Range = range(-100, 100);
pub(in crate::config::jobs_file) const LOSSES: Range = range(0, 100);
pub(in crate::config::jobs_file) const EXIT_CODES: Range = range(1, 255);
pub(in crate::config::jobs_file) const SUCCESS_EXIT_CODES: Range = range(0, 255);
/// The init of the container counts as one; the kernel ends at 2^22.
pub(in crate::config::jobs_file) const PIDS: Range = range(2, 4_194_304);
pub(in crate::config::jobs_file) const GPUS: Range = range(1, 64);
pub(in crate::config::jobs_file) const AMOUNTS: Range = range(1, 1_000_000);

/// A limit of the kernel; -1 is none.
pub(in crate::config::jobs_file) const ULIMIT: Range = range(-1, i64::MAX);

/// The longest duration, unless a key says otherwise.
pub(in crate::config::jobs_file) const DURATION_MAX: Duration = Duration::from_secs(30 * 86_400);
/// The longest duration of an expectation: a yearly job has a month to spare.
pub(in crate::config::jobs_file) const EXPECT_MAX: Duration = Duration::from_secs(400 * 86_400);
/// The shortest duration, unless a key says otherwise.
pub(in crate::config::jobs_file) const DURATION_MIN: Duration = Duration::from_secs(1);
/// The shortest wait before another attempt.
pub(in crate::config::jobs_file) const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The most waits in `delays`: as many as there can be retries.
pub(in crate::config::jobs_file) const DELAYS_MAX: usize = 100;
/// The shortest heartbeat interval that the server's own flag allows.
pub(in crate::config::jobs_file) const HEARTBEAT_MIN: Duration = crate::config::intervals::HEARTBEAT_MIN;
/// The timeout of jobs that name none.
pub(in crate::config::jobs_file) const TIMEOUT: Duration = Duration::from_secs(3600);
/// The largest factor of waits and of memory, in thousandths.
pub(in crate::config::jobs_file) const FACTOR_MILLI_MAX: u32 = 100_000;
