//! Deletes ended jobs, idempotency keys and late reports once they have been kept long enough, in small steps.
//!
//! Each step is a transaction of the store's one writer, so commits have to wait for it. Therefore a step is short, and between two of
//! them commits have the writer to themselves for several times as long. What is due is found by index: looking costs the same
//! whether the store holds a thousand jobs or ten million.

use std::path::PathBuf;
use std::time::Duration;

use protocol::{Now, Timestamp};
use tokio::time::sleep;

use super::leftovers;
use super::trusted_clock::TrustedClock;
use crate::config::Retention as Kept;
use crate::engine::Remover;
use crate::store::{CommitError, Removed, RetentionCutoffs};

/// Deletes what has been kept long enough.
pub(super) struct JobRetention<C> {
    remover: Remover,
    kept: Kept,
    /// The data directory, for leftovers.
    data: PathBuf,
    clock: C,
    trusted_clock: TrustedClock,
}

/// Nobody deletes anything any more: the store is closed, or another server's.
struct StoreClosed;

impl<C: Fn() -> Now> JobRetention<C> {
    /// `by` is the time that an earlier process went by.
    pub(super) fn new(remover: Remover, kept: Kept, data: PathBuf, by: Option<Timestamp>, clock: C) -> Self {
        let trusted_clock = TrustedClock::new(by, clock());
        Self { remover, kept, data, clock, trusted_clock }
    }

    /// Goes on until the store is closed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most one step under way.
    pub(super) async fn run(&mut self) {
        while let Ok(pause) = self.run_once().await {
            sleep(pause).await;
        }
    }

    /// Deletes all that is due, and says when to look again.
    async fn run_once(&mut self) -> Result<Duration, StoreClosed> {
        let mut sum = Removed::default();
        let pause = loop {
            let now = (self.clock)();
            let cutoffs = self.kept.keep(self.trusted_clock.time(now), ROWS_MAX);
            let cutoffs = RetentionCutoffs { by: self.trusted_clock.to_write(now.up), ..cutoffs };
            match self.remover.remove(cutoffs).await.ok_or(StoreClosed)? {
                Ok(step) => {
                    self.remover.health().note_retention(Ok::<_, CommitError>(()));
                    if let Some(time) = cutoffs.by {
                        self.trusted_clock.wrote(now.up);
                        self.remove_leftovers(time).await;
                    }
                    sum.jobs += step.removed.jobs;
                    sum.keys += step.removed.keys;
                    sum.late_reports += step.removed.late_reports;
                    if !step.removed.more {
                        break CHECK_EVERY;
                    }
                    sleep(step.took * OTHERS_SHARE).await;
                }
                // The engine meets the same, and says it.
                Err(CommitError::Fenced { .. }) => return Err(StoreClosed),
                Err(error @ CommitError::Refused(_)) => {
                    self.remover.health().note_retention(Err(&error));
                    tracing::error!(%error, "the store refused to delete old rows; trying again in an hour");
                    break AFTER_REFUSAL;
                }
                Err(error) => {
                    self.remover.health().note_retention(Err(&error));
                    tracing::warn!(%error, "the store is unavailable: retention tries again in some seconds");
                    break CHECK_EVERY;
                }
            }
        };
        let Removed { jobs, keys, late_reports, .. } = sum;
        if jobs + keys + late_reports > 0 {
            tracing::info!(jobs, keys, late_reports, "deleted rows beyond retention");
        }
        Ok(pause)
    }
}

impl<C> JobRetention<C> {
    /// Deletes old leftovers, once for each time that is written down: hourly.
    async fn remove_leftovers(&self, time: Timestamp) {
        let data = self.data.clone();
        // A panic has been reported by its hook; the next hour tries again.
        let _ = tokio::task::spawn_blocking(move || leftovers::remove_old(&data, time)).await;
    }
}

/// Rows of one kind in a step: a few milliseconds.
const ROWS_MAX: usize = 500;
/// After a step commits have the writer for themselves so many times as long.
const OTHERS_SHARE: u32 = 4;
/// Rows become due within minutes and days; a check costs some microseconds.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const AFTER_REFUSAL: Duration = Duration::from_secs(3_600);

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::sync::{Arc, Mutex};

    use protocol::order::Intervals;
    use protocol::{JobId, Uptime};
    use scheduler::input::GroupNo;
    use scheduler::job::State;
    use scheduler::step::{AddedJob, Change, Ended};

    use super::*;
    use crate::catalogue::Definitions;
    use crate::config::jobs_file::{self, Environment};
    use crate::engine::Engine;
    use crate::store::directory::DataDirectory;
    use crate::store::sqlite::{self, SqliteArchive, SqliteStore};
    use crate::store::{Archive, Group, JobFilter, LoadError, LoadItem, Loaded, RecordChange, Store};

    /// Everything is too old by then.
    const LATER: i64 = 1 << 40;

    const KEPT: Kept = Kept {
        jobs: Some(Duration::from_millis(100)),
        jobs_max: None,
        output_bytes_max: None,
        keys: Duration::from_millis(100),
        late_reports: Duration::from_millis(100),
    };

    /// A store with jobs that ended one after the other, at millisecond 1, 2, 3, …; the last one has not.
    pub(in crate::maintenance) fn store_of(jobs: u64) -> (SqliteStore, Arc<SqliteArchive>) {
        let (mut store, archive) = sqlite::temporary();
        fill(&mut store, jobs);
        (store, archive)
    }

    fn fill(store: &mut SqliteStore, jobs: u64) {
        let loaded = store.load(&mut |_| {}).unwrap();
        let text = "jobs: { resize: { image: 'resize:1' } }";
        let file = jobs_file::parse(text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
        let definition = Arc::clone(&file.definitions[0].stored);
        let revision = definition.revision;
        let added = move |job| {
            Change::Added(AddedJob {
                job: JobId(job),
                revision,
                state: State::Queued,
                priority: 0,
                created_at: Timestamp(0),
                due_at: Timestamp(0),
                timeout: None,
                batch: None,
                retry_of: None,
                keys: None,
                details: None,
            })
        };
        let ended = |job: u64| {
            Change::Ended(Ended {
                job: JobId(job),
                state: State::Cancelled,
                at: Timestamp(job.cast_signed()),
                reason: String::new(),
                closed: None,
                confirmed: true,
            })
        };
        store
            .commit(&Group {
                epoch: loaded.epoch,
                number: GroupNo(1),
                at: Timestamp(0),
                definitions: vec![definition],
                changes: (1..=jobs).map(added).chain((1..jobs).map(ended)).collect(),
                ..Group::default()
            })
            .unwrap();
    }

    /// Retention of a store, by a clock that the test sets. The engine is there for its writer.
    fn retention(
        store: impl Store + 'static,
        clock: &Arc<AtomicI64>,
    ) -> (JobRetention<impl Fn() -> Now>, Engine) {
        let evidence = std::env::temp_dir();
        let (engine, handles) = Engine::load(
            Box::new(store),
            &Definitions::new(Vec::new()),
            Intervals::default(),
            usize::MAX,
            evidence,
        )
        .unwrap();
        let clock = Arc::clone(clock);
        // Both clocks go together.
        let now = move || {
            let ms = clock.load(Ordering::Relaxed);
            Now { utc: Timestamp(ms), up: Uptime(ms.unsigned_abs() * 1_000_000) }
        };
        (
            JobRetention::new(
                handles.remover,
                KEPT,
                PathBuf::from("/nonexistent"),
                handles.retention_by,
                now,
            ),
            engine,
        )
    }

    fn count(archive: &SqliteArchive) -> usize {
        archive.jobs(&JobFilter { limit: 500, ..JobFilter::default() }).unwrap().len()
    }

    #[tokio::test]
    async fn jobs_go_when_their_time_has_come() {
        let ((store, archive), clock) = (store_of(51), Arc::new(AtomicI64::new(100)));
        let (mut retention, _engine) = retention(store, &clock);
        assert!(matches!(retention.run_once().await, Ok(CHECK_EVERY)));
        assert_eq!(count(&archive), 51);
        clock.store(131, Ordering::Relaxed);
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 21);
        clock.store(LATER, Ordering::Relaxed);
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 1, "what has not ended stays");
    }

    /// Says what it is asked for, and has a fault now and then.
    struct Faulty {
        store: SqliteStore,
        asked: Arc<Mutex<Vec<RetentionCutoffs>>>,
        faults: Vec<CommitError>,
    }

    impl Store for Faulty {
        fn load(&mut self, visit: &mut dyn FnMut(LoadItem<'_>)) -> Result<Loaded, LoadError> {
            self.store.load(visit)
        }

        fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
            self.store.commit(group)
        }

        fn remove(
            &mut self,
            epoch: protocol::Epoch,
            cutoffs: &RetentionCutoffs,
        ) -> Result<Removed, CommitError> {
            self.asked.lock().unwrap().push(*cutoffs);
            self.faults.pop().map_or_else(|| self.store.remove(epoch, cutoffs), Err)
        }

        fn change_record(
            &mut self,
            epoch: protocol::Epoch,
            change: &RecordChange,
        ) -> Result<(), CommitError> {
            self.store.change_record(epoch, change)
        }
    }

    #[tokio::test]
    async fn much_goes_in_many_steps_and_a_store_with_faults_is_asked_again_later() {
        let ((store, archive), clock) = (store_of(1_201), Arc::new(AtomicI64::new(LATER)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let faults = vec![CommitError::Refused("no".into()), CommitError::Unavailable("full".into())];
        let faulty = Faulty { store, asked: Arc::clone(&asked), faults };
        let (mut retention, _engine) = retention(faulty, &clock);
        assert!(matches!(retention.run_once().await, Ok(CHECK_EVERY)));
        assert!(matches!(retention.run_once().await, Ok(AFTER_REFUSAL)));
        assert_eq!(asked.lock().unwrap().len(), 2);
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 1);
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2 + 4, "the last step finds nothing more");
        assert!(asked.iter().all(|cutoffs| cutoffs.rows_max == ROWS_MAX));
    }

    #[tokio::test]
    async fn retention_stops_when_the_store_is_taken_over_or_closed() {
        let clock = Arc::new(AtomicI64::new(LATER));
        let directory = DataDirectory::temporary();
        let (mut store, archive) = sqlite::open(&directory).unwrap();
        fill(&mut store, 3);
        let (mut retention, engine) = retention(store, &clock);
        let (mut successor, _) = sqlite::open(&directory).unwrap();
        successor.load(&mut |_| {}).unwrap();
        assert!(retention.run_once().await.is_err());
        assert_eq!(count(&archive), 3);
        let stop = tokio_util::sync::CancellationToken::new();
        stop.cancel();
        // Another epoch writes: the engine finds that out, or has nothing to write.
        let _ = engine.run(stop).await;
        retention.run().await;
    }
}
