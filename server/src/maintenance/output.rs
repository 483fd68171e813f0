//! Deletes the output of jobs: a segment as soon as no job in it is kept or has output that its definition still keeps, and the oldest ones while all of them together are too large.
//!
//! Segments are shared by many attempts, so output goes later than its job, and never in part. To know whether a segment is still
//! needed, one job that needs it is enough: that one is remembered and looked up again. When it has gone, the next lower one is looked
//! for, so each job of a segment is looked up about once in its life.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::catalogue::Catalogue;
use crate::logs::{Logs, LogsError, Segment};
use crate::retention_time::RetentionTime;
use crate::store::{Archive, ReadError};

/// Deletes output that is no longer to be kept.
pub(super) struct OutputRetention {
    archive: Arc<dyn Archive>,
    logs: Arc<Logs>,
    bytes_max: Option<u64>,
    catalogue: Arc<Catalogue>,
    time: RetentionTime,
    /// The ages of output of definitions, as of the last look.
    ages: BTreeMap<String, Duration>,
    /// For each segment the highest job in it whose output was kept when this was last looked at.
    needed_by: HashMap<u64, JobId>,
}

/// Why some output is not deleted this time.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error(transparent)]
    Archive(#[from] ReadError),
}

impl OutputRetention {
    pub(super) fn new(archive: Arc<dyn Archive>, logs: Arc<Logs>, bytes_max: Option<u64>) -> Self {
        let (catalogue, time) = (Arc::default(), RetentionTime::unknown());
        Self { archive, logs, bytes_max, catalogue, time, ages: BTreeMap::new(), needed_by: HashMap::new() }
    }

    /// Goes by the rules of these definitions as well.
    pub(super) fn with_definitions(self, catalogue: Arc<Catalogue>, time: RetentionTime) -> Self {
        Self { catalogue, time, ..self }
    }

    /// Goes on until told to stop.
    pub(super) async fn run(mut self, until: CancellationToken) {
        loop {
            let round = tokio::task::spawn_blocking(move || {
                if let Err(error) = self.run_once() {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "some old output cannot be deleted; trying again in some seconds"
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
        let mut segments: VecDeque<Segment> = self.logs.segments().into();
        let mut bytes = self.logs.growing_bytes() + segments.iter().map(|it| it.bytes).sum::<u64>();
        let (mut surplus, mut unneeded) = (0, 0);
        let mut failure = None;
        while self.bytes_max.is_some_and(|max| bytes > max) {
            let Some(oldest) = segments.pop_front() else { break };
            match self.remove(oldest.number) {
                Ok(()) => (bytes, surplus) = (bytes - oldest.bytes, surplus + 1),
                Err(error) => failure = Some(error),
            }
        }
        let since = self.output_since();
        for segment in segments {
            match self.remove_unneeded(segment.number, &since) {
                Ok(is_removed) => unneeded += u32::from(is_removed),
                // One segment that cannot be read or deleted does not keep the others.
                Err(error @ Failure::Logs(_)) => failure = Some(error),
                Err(error @ Failure::Archive(_)) => return Err(error),
            }
        }
        if surplus + unneeded > 0 {
            tracing::info!(surplus, unneeded, "deleted segments of output");
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns whether the segment was deleted.
    fn remove_unneeded(
        &mut self,
        segment: u64,
        since: &BTreeMap<String, Timestamp>,
    ) -> Result<bool, Failure> {
        if self.is_needed(segment, since)? {
            return Ok(false);
        }
        self.remove(segment)?;
        Ok(true)
    }

    fn remove(&mut self, segment: u64) -> Result<(), Failure> {
        self.needed_by.remove(&segment);
        Ok(self.logs.remove(segment)?)
    }

    /// For each definition with a rule for output: output of jobs that ended before this instant is not needed. Empty until the time is
    /// known. It walks all definitions, once in ten seconds and beside the engine.
    fn output_since(&mut self) -> BTreeMap<String, Timestamp> {
        let Some(now) = self.time.get() else { return BTreeMap::new() };
        let ages: BTreeMap<String, Duration> = self
            .catalogue
            .current()
            .retention_rules("", usize::MAX)
            .into_iter()
            .filter_map(|(name, rule)| Some((name.to_owned(), rule.output_max_age?)))
            .collect();
        if ages != self.ages {
            // Output that was not needed before may be needed again.
            self.needed_by.clear();
            self.ages = ages;
        }
        self.ages.iter().map(|(name, age)| (name.clone(), now - *age)).collect()
    }

    /// True if the output of any job in this segment is kept.
    fn is_needed(&mut self, segment: u64, since: &BTreeMap<String, Timestamp>) -> Result<bool, Failure> {
        let mut highest = JobId(u64::MAX);
        if let Some(known) = self.needed_by.get(&segment) {
            if self.archive.first_with_output(&[*known], since)?.is_some() {
                return Ok(true);
            }
            // Job numbers are never given again: all that was looked at before is still gone.
            highest = *known;
        }
        loop {
            let jobs = self.logs.jobs(segment, highest, JOBS_AT_ONCE)?;
            let Some(lowest) = jobs.last() else { return Ok(false) };
            if let Some(kept) = self.archive.first_with_output(&jobs, since)? {
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
    use std::path::Path;

    use super::*;
    use crate::catalogue::Definitions;
    use crate::config::jobs_file::{self, Environment};
    use crate::logs::{AttemptKey, Limits};
    use crate::store::sqlite::SqliteStore;
    use crate::store::{RetentionCutoffs, Store};

    const SMALL: Limits = Limits {
        segment_bytes: 1_000,
        sync_interval: Duration::ZERO,
        waiting_bytes: 1 << 20,
        is_same_boot: false,
    };

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
    async fn a_segment_goes_once_its_definitions_need_no_output_in_it() {
        let place = tempfile::tempdir().unwrap();
        let logs = Logs::open(place.path(), SMALL).unwrap();
        let (_store, archive) = store_of(10);
        for job in [1, 3, 2, 4, 5, 6, 7, 10, 8, 9] {
            write(&logs, job, 300).await;
        }
        let definitions = |age: &str| {
            let text = format!(
                "jobs: {{ resize: {{ image: 'resize:1', retention: {{ output_max_age: {age} }} }} }}"
            );
            let file = jobs_file::parse(&text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
            Definitions::new(file.definitions)
        };
        let catalogue = Arc::new(Catalogue::new(definitions("1m")));
        let time = RetentionTime::unknown();
        let mut output = OutputRetention::new(archive, Arc::clone(&logs), None)
            .with_definitions(catalogue.clone(), time.clone());
        let mut left = || {
            output.run_once().unwrap();
            logs.segments().iter().map(|segment| segment.number).collect::<Vec<_>>()
        };
        assert_eq!(left(), [1, 2, 3], "the time is not known");
        time.set(Timestamp(60_003));
        assert_eq!(left(), [1, 2, 3], "job 3 ended a minute ago");
        time.set(Timestamp(60_004));
        assert_eq!(left(), [2, 3]);
        catalogue.replace(definitions("2m"));
        time.set(Timestamp(60_500));
        assert_eq!(left(), [2, 3], "a reload changes the rule");
        catalogue.replace(definitions("1m"));
        assert_eq!(left(), [3], "job 10 has not ended");
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
