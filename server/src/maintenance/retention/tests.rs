//! Retention with a clock that the test sets, on stores that work and stores with faults.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use protocol::order::Intervals;
use protocol::{JobId, Uptime};
use scheduler::ids::GroupNo;
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

const KEPT: ServerRetention = ServerRetention {
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
            submitted_by: None,
            narrowing: None,
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
            handles.last_retention_time,
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
        let text =
            format!("jobs: {{ mail: {{ image: a }}, resize: {{ image: 'resize:1', retention: {rule} }} }}");
        let file = jobs_file::parse(&text, Path::new("jobs.yaml"), &Environment::default()).unwrap();
        Definitions::new(file.definitions)
    };
    let catalogue = Arc::new(Catalogue::new(definitions("{ keep: 30, output_max_age: 1h }")));
    let time = RetentionTime::unknown();
    let mut retention = retention.with_definitions(catalogue.clone(), time.clone());
    retention.retention.age_min = Duration::from_millis(65);
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

    fn remove(&mut self, epoch: protocol::Epoch, cutoffs: &RetentionCutoffs) -> Result<Removed, CommitError> {
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

    fn change_record(&mut self, epoch: protocol::Epoch, change: &RecordChange) -> Result<(), CommitError> {
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
