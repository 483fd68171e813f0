//! Deletes the output of jobs: a segment as soon as no job in it is kept, and the oldest ones while all of them together are too large.
//!
//! Segments are shared by many attempts, so output goes later than its job, and never in part. To know whether a segment is still
//! needed, one job that needs it is enough: that one is remembered and looked up again. When it has gone, the next lower one is looked
//! for, so each job of a segment is looked up about once in its life.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::JobId;
use tokio_util::sync::CancellationToken;

use crate::logs::{Logs, LogsError};
use crate::store::{Archive, ReadError};

/// Deletes output that is no longer to be kept.
pub(super) struct OutputRetention {
    archive: Arc<dyn Archive>,
    logs: Arc<Logs>,
    bytes_max: Option<u64>,
    /// For each segment the highest job in it that was kept when this was last looked at.
    needed_by: HashMap<u64, JobId>,
}

/// Why nothing more is deleted this time.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error(transparent)]
    Archive(#[from] ReadError),
}

impl OutputRetention {
    pub(super) fn new(archive: Arc<dyn Archive>, logs: Arc<Logs>, bytes_max: Option<u64>) -> Self {
        Self { archive, logs, bytes_max, needed_by: HashMap::new() }
    }

    /// Goes on until told to stop.
    pub(super) async fn run(mut self, until: CancellationToken) {
        loop {
            let round = tokio::task::spawn_blocking(move || {
                if let Err(error) = self.run_once() {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "cannot delete old output; trying again in some seconds"
                    );
                }
                self
            });
            // A panic has been reported; there is nothing to go on with.
            let Ok(after) = round.await else { return };
            self = after;
            if until.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// Blocks on the disk.
    fn run_once(&mut self) -> Result<(), Failure> {
        let mut segments = self.logs.segments();
        let mut bytes = self.logs.growing_bytes() + segments.iter().map(|it| it.bytes).sum::<u64>();
        let (mut surplus, mut unneeded) = (0, 0);
        while let Some(oldest) = segments.first().filter(|_| self.bytes_max.is_some_and(|max| bytes > max)) {
            bytes -= oldest.bytes;
            self.remove(oldest.number)?;
            segments.remove(0);
            surplus += 1;
        }
        for segment in segments {
            if !self.is_needed(segment.number)? {
                self.remove(segment.number)?;
                unneeded += 1;
            }
        }
        if surplus + unneeded > 0 {
            tracing::info!(surplus, unneeded, "deleted segments of output");
        }
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> Result<(), Failure> {
        self.needed_by.remove(&segment);
        Ok(self.logs.remove(segment)?)
    }

    /// True if any job with output in this segment is kept.
    fn is_needed(&mut self, segment: u64) -> Result<bool, Failure> {
        let mut highest = JobId(u64::MAX);
        if let Some(known) = self.needed_by.get(&segment) {
            if self.archive.first_kept(&[*known])?.is_some() {
                return Ok(true);
            }
            // Job numbers are never given again: all that was looked at before is still gone.
            highest = *known;
        }
        loop {
            let jobs = self.logs.jobs(segment, highest, JOBS_AT_ONCE)?;
            let Some(lowest) = jobs.last() else { return Ok(false) };
            if let Some(kept) = self.archive.first_kept(&jobs)? {
                self.needed_by.insert(segment, kept);
                return Ok(true);
            }
            highest = JobId(lowest.0.saturating_sub(1));
        }
    }
}

/// Jobs looked up in one read of the store: about a millisecond.
const JOBS_AT_ONCE: usize = 500;

const CHECK_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use protocol::report::{Chunk, ChunkData, Stream};
    use protocol::{Epoch, Fence, Nonce, Timestamp, Token};

    use super::super::retention::tests::store_of;
    use super::*;
    use crate::logs::{AttemptKey, Limits};
    use crate::store::sqlite::SqliteStore;
    use crate::store::{RetentionCutoffs, Store};

    const SMALL: Limits =
        Limits { segment_bytes: 1_000, sync_interval: Duration::ZERO, waiting_bytes: 1 << 20 };

    async fn write(logs: &Logs, job: u64, bytes: usize) {
        let token = Token { job: JobId(job), fence: Fence(job), nonce: Nonce(1) };
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        logs.append(vec![Chunk { token, stream: Stream::Stdout, offset: 0, data }]).await.unwrap();
    }

    fn has(logs: &Logs, job: u64) -> bool {
        logs.lengths(AttemptKey { job: JobId(job), fence: Fence(job) }).unwrap().stdout > 0
    }

    /// Forgets all jobs that ended before this instant; job n ends at millisecond n.
    fn forget(store: &mut SqliteStore, until: i64) {
        let ended_since = Timestamp(until);
        let cutoffs = RetentionCutoffs {
            ended_since,
            ended_max: 99,
            keyed_since: ended_since,
            late_since: ended_since,
            rows_max: 99,
            by: None,
        };
        store.remove(Epoch(1), &cutoffs).unwrap();
    }

    #[tokio::test]
    async fn a_segment_goes_with_the_last_job_in_it() {
        let place = tempfile::tempdir().unwrap();
        let logs = Logs::open(place.path(), SMALL).unwrap();
        let (mut store, archive) = store_of(10);
        for job in [1, 3, 2, 4, 5, 6, 7, 10, 8, 9] {
            write(&logs, job, 300).await;
        }
        assert_eq!(logs.segments().len(), 3, "with jobs 1, 3, 2; 4, 5, 6; 7, 10, 8");
        let mut output = OutputRetention::new(archive, Arc::clone(&logs), None);
        let mut left = |store: &mut SqliteStore, until| {
            forget(store, until);
            output.run_once().unwrap();
            let numbers: Vec<u64> = logs.segments().iter().map(|segment| segment.number).collect();
            assert_eq!(output.needed_by.len(), numbers.len());
            numbers
        };
        assert_eq!(left(&mut store, 0), [1, 2, 3]);
        assert_eq!(left(&mut store, 3), [1, 2, 3], "job 3 ended just then");
        assert!(has(&logs, 1), "it lies beside output that is needed");
        assert_eq!(left(&mut store, 4), [2, 3]);
        assert!(!has(&logs, 3) && has(&logs, 4));
        assert_eq!(left(&mut store, 99), [3], "job 10 has not ended");
    }

    #[tokio::test]
    async fn the_oldest_segments_go_while_all_of_them_are_too_large() {
        let place = tempfile::tempdir().unwrap();
        let logs = Logs::open(place.path(), SMALL).unwrap();
        for job in 1..=9 {
            write(&logs, job, 600).await;
        }
        let sizes: Vec<u64> = logs.segments().iter().map(|segment| segment.bytes).collect();
        let all = sizes.iter().sum::<u64>() + logs.growing_bytes();
        let (_store, archive) = store_of(10);
        let archive: Arc<dyn Archive> = archive;
        let numbers = |max: u64| {
            OutputRetention::new(Arc::clone(&archive), Arc::clone(&logs), Some(max)).run_once().unwrap();
            logs.segments().iter().map(|segment| segment.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(all), [1, 2, 3, 4]);
        assert_eq!(numbers(all - 1), [2, 3, 4]);
        assert_eq!(numbers(all - sizes[0] - sizes[1] - 1), [4]);
        assert!(!has(&logs, 1) && has(&logs, 7));
        assert_eq!(numbers(0), [0; 0], "the growing one stays");
        assert!(has(&logs, 9));
    }
}
