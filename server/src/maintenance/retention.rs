//! Deletes ended jobs, idempotency keys and late reports once they have been kept long enough, in small steps.
//!
//! Each step is a transaction of the store's one writer, so commits have to wait for it. Therefore a step is short, and between two of
//! them commits have the writer to themselves for several times as long. What is due is found by index: looking costs the same
//! whether the store holds a thousand jobs or ten million.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Now, Timestamp};
use tokio::time::sleep;

use super::RetentionTime;
use super::leftovers;
use super::trusted_clock::TrustedClock;
use crate::catalogue::Catalogue;
use crate::config::Retention as Kept;
use crate::engine::{Removal, RemovalStep, Remover};
use crate::store::{CommitError, DefinitionCutoffs, DefinitionRemoval, Removed, RetentionCutoffs};

/// Deletes what has been kept long enough.
pub(super) struct JobRetention<C> {
    remover: Remover,
    kept: Kept,
    /// The definitions, for their own rules.
    catalogue: Arc<Catalogue>,
    /// The time of the last step, for the other tasks.
    time: RetentionTime,
    /// The data directory, for leftovers.
    data: PathBuf,
    clock: C,
    trusted_clock: TrustedClock,
}

/// Nobody deletes anything any more: the store is closed, or another server's.
struct StoreClosed;

/// The end of a round: all that was due is deleted, or an error wants a pause.
enum Round {
    Done,
    Failed(Duration),
}

impl<C: Fn() -> Now> JobRetention<C> {
    /// `by` is the time that an earlier process went by.
    pub(super) fn new(remover: Remover, kept: Kept, data: PathBuf, by: Option<Timestamp>, clock: C) -> Self {
        let trusted_clock = TrustedClock::new(by, clock());
        let (catalogue, time) = (Arc::default(), RetentionTime::unknown());
        Self { remover, kept, catalogue, time, data, clock, trusted_clock }
    }

    /// Goes by the rules of these definitions as well, and writes down the time that it goes by.
    pub(super) fn with_definitions(self, catalogue: Arc<Catalogue>, time: RetentionTime) -> Self {
        Self { catalogue, time, ..self }
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
        let mut round = self.remove_by_server(&mut sum).await?;
        if let Round::Done = round {
            round = self.remove_by_definition(&mut sum).await?;
        }
        let Removed { jobs, keys, late_reports, .. } = sum;
        if jobs + keys + late_reports > 0 {
            tracing::info!(jobs, keys, late_reports, "deleted rows beyond retention");
        }
        Ok(match round {
            Round::Done => CHECK_EVERY,
            Round::Failed(pause) => pause,
        })
    }

    /// Deletes what is beyond the limits of the server.
    async fn remove_by_server(&mut self, sum: &mut Removed) -> Result<Round, StoreClosed> {
        loop {
            let now = (self.clock)();
            let time = self.trusted_clock.time(now);
            self.time.set(time);
            let by = self.trusted_clock.to_write(now.up);
            let cutoffs = RetentionCutoffs { by, ..self.kept.keep(time, ROWS_MAX) };
            let step = match self.step(Removal::ByServer(cutoffs)).await? {
                Ok(step) => step,
                Err(pause) => return Ok(Round::Failed(pause)),
            };
            if let Some(time) = by {
                self.trusted_clock.wrote(now.up);
                self.remove_leftovers(time).await;
            }
            add(sum, step.removed);
            if !step.removed.more {
                return Ok(Round::Done);
            }
            sleep(step.took * OTHERS_SHARE).await;
        }
    }

    /// Deletes what is beyond the limits of definitions. Each step reads the rules again, so that a reload counts at once.
    async fn remove_by_definition(&mut self, sum: &mut Removed) -> Result<Round, StoreClosed> {
        let mut after = String::new();
        loop {
            let now = self.trusted_clock.time((self.clock)());
            let definitions = self.catalogue.current();
            let rules = definitions.retention_rules(&after, RULES_AT_ONCE);
            let Some((last, _)) = rules.last() else { return Ok(Round::Done) };
            let cutoffs: Arc<[DefinitionCutoffs]> =
                rules.iter().filter_map(|(name, rule)| rule.cutoffs(name, now)).collect();
            let kept_since = now - self.kept.age_min;
            let removal = DefinitionRemoval { definitions: cutoffs, kept_since, now, rows_max: ROWS_MAX };
            let step = match self.step(Removal::ByDefinition(removal)).await? {
                Ok(step) => step,
                Err(pause) => return Ok(Round::Failed(pause)),
            };
            add(sum, step.removed);
            if !step.removed.more {
                after = (*last).to_owned();
            }
            sleep(step.took * OTHERS_SHARE).await;
        }
    }

    /// Makes one step. After an error the inner result is the time until the next try.
    async fn step(&self, removal: Removal) -> Result<Result<RemovalStep, Duration>, StoreClosed> {
        match self.remover.remove(removal).await.ok_or(StoreClosed)? {
            Ok(step) => {
                self.remover.health().note_retention(Ok::<_, CommitError>(()));
                Ok(Ok(step))
            }
            // The engine meets the same, and says it.
            Err(CommitError::Fenced { .. }) => Err(StoreClosed),
            Err(error @ CommitError::Refused(_)) => {
                self.remover.health().note_retention(Err(&error));
                tracing::error!(%error, "the store refused to delete old rows; trying again in an hour");
                Ok(Err(AFTER_REFUSAL))
            }
            Err(error) => {
                self.remover.health().note_retention(Err(&error));
                tracing::warn!(%error, "the store is unavailable: retention tries again in some seconds");
                Ok(Err(CHECK_EVERY))
            }
        }
    }
}

fn add(sum: &mut Removed, removed: Removed) {
    sum.jobs += removed.jobs;
    sum.keys += removed.keys;
    sum.late_reports += removed.late_reports;
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
/// Definitions with rules in a step: each costs some lookups in indexes, and all of them some milliseconds.
const RULES_AT_ONCE: usize = 200;
/// After a step commits have the writer for themselves so many times as long.
const OTHERS_SHARE: u32 = 4;
/// Rows become due within minutes and days; a check costs some microseconds.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const AFTER_REFUSAL: Duration = Duration::from_secs(3_600);

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, Ordering};

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
        age_min: Duration::ZERO,
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

    #[tokio::test]
    async fn definitions_have_limits_of_their_own() {
        let ((store, archive), clock) = (store_of(51), Arc::new(AtomicI64::new(100)));
        let (retention, _engine) = retention(store, &clock);
        let definitions = |rule: &str| {
            let text = format!(
                "jobs: {{ mail: {{ image: a }}, resize: {{ image: 'resize:1', retention: {rule} }} }}"
            );
            let file = jobs_file::parse(&text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
            Definitions::new(file.definitions)
        };
        let catalogue = Arc::new(Catalogue::new(definitions("{ keep: 30, output_max_age: 1h }")));
        let time = RetentionTime::unknown();
        let mut retention = retention.with_definitions(catalogue.clone(), time.clone());
        retention.kept.age_min = Duration::from_millis(65);
        assert!(matches!(retention.run_once().await, Ok(CHECK_EVERY)));
        assert_eq!(count(&archive), 51 - 20, "50 have ended");
        assert_eq!(time.get(), Some(Timestamp(100)));
        catalogue.replace(definitions("{ keep: 1 }"));
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 51 - 34, "no job goes within the shortest time after its end");
        catalogue.replace(definitions("{ keep: 10 }"));
        clock.store(115, Ordering::Relaxed);
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 11);
        // Without a rule, or without the definition, the limits of the server hold alone.
        catalogue.replace(Definitions::new(Vec::new()));
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 11);
        clock.store(LATER, Ordering::Relaxed);
        assert!(retention.run_once().await.is_ok());
        assert_eq!(count(&archive), 1);
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

        fn remove_by_definition(
            &mut self,
            epoch: protocol::Epoch,
            removal: &DefinitionRemoval,
        ) -> Result<Removed, CommitError> {
            self.store.remove_by_definition(epoch, removal)
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
    async fn it_is_over_when_the_store_is_another_servers_or_closed() {
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
