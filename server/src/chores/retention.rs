//! Deletes ended jobs, idempotency keys and late reports once they have been kept long enough, in small steps.
//!
//! Each step is a transaction of the store's one writer, so commits have to wait for it. Therefore a step is short, and between two of
//! them commits have the writer to themselves for several times as long. What is due is found by index: looking costs the same
//! whether the store holds a thousand jobs or ten million.

use std::time::Duration;

use protocol::{Now, Timestamp};
use tokio::time::sleep;

use super::calendar::Calendar;
use crate::config::Retention as Kept;
use crate::engine::Remover;
use crate::store::{CommitError, Keep, Removed};

/// Deletes what has been kept long enough.
pub(super) struct Retention<C> {
    remover: Remover,
    kept: Kept,
    clock: C,
    calendar: Calendar,
}

/// Nobody deletes anything any more: the store is closed, or another server's.
struct Over;

impl<C: Fn() -> Now> Retention<C> {
    /// `by` is the time that an earlier process went by.
    pub(super) fn new(remover: Remover, kept: Kept, by: Option<Timestamp>, clock: C) -> Self {
        let calendar = Calendar::new(by, clock());
        Self { remover, kept, clock, calendar }
    }

    /// Goes on until the store is closed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most one step under way.
    pub(super) async fn run(&mut self) {
        while let Ok(pause) = self.round().await {
            sleep(pause).await;
        }
    }

    /// Deletes all that is due, and says when to look again.
    async fn round(&mut self) -> Result<Duration, Over> {
        let mut sum = Removed::default();
        let pause = loop {
            let now = (self.clock)();
            let keep = self.kept.keep(self.calendar.time(now), ROWS_MAX);
            let keep = Keep { by: self.calendar.to_write(now.up), ..keep };
            match self.remover.remove(keep).await.ok_or(Over)? {
                Ok(step) => {
                    if keep.by.is_some() {
                        self.calendar.wrote(now.up);
                    }
                    sum.jobs += step.removed.jobs;
                    sum.keys += step.removed.keys;
                    sum.late_reports += step.removed.late_reports;
                    if !step.removed.more {
                        break LOOK_EVERY;
                    }
                    sleep(step.took * OTHERS_SHARE).await;
                }
                // The engine meets the same, and says it.
                Err(CommitError::Fenced { .. }) => return Err(Over),
                Err(error @ CommitError::Refused(_)) => {
                    tracing::error!(%error, "retention cannot go on; trying again in an hour");
                    break AFTER_REFUSAL;
                }
                Err(error) => {
                    tracing::warn!(%error, "retention has to wait for the store");
                    break LOOK_EVERY;
                }
            }
        };
        let Removed { jobs, keys, late_reports, .. } = sum;
        if jobs + keys + late_reports > 0 {
            tracing::info!(jobs, keys, late_reports, "deleted what has been kept long enough");
        }
        Ok(pause)
    }
}

/// Rows of one kind in a step: a few milliseconds.
const ROWS_MAX: usize = 500;
/// After a step commits have the writer for themselves so many times as long.
const OTHERS_SHARE: u32 = 4;
/// What is due is due by minutes and days; looking costs some microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(10);
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
    use crate::store::memory::MemoryStore;
    use crate::store::{Archive, Group, JobFilter, LiveJob, LoadError, Loaded, Store};

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
    pub(in crate::chores) fn store_of(jobs: u64) -> MemoryStore {
        let mut store = MemoryStore::new();
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
            })
            .unwrap();
        store
    }

    /// Retention of a store, by a clock that the test sets. The engine is there for its writer.
    fn retention(
        store: impl Store + 'static,
        clock: &Arc<AtomicI64>,
    ) -> (Retention<impl Fn() -> Now>, Engine) {
        let evidence = std::env::temp_dir();
        let (engine, ends) = Engine::load(
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
        (Retention::new(ends.remover, KEPT, ends.retention_by, now), engine)
    }

    fn count(store: &MemoryStore) -> usize {
        store.jobs(&JobFilter { limit: 500, ..JobFilter::default() }).unwrap().len()
    }

    #[tokio::test]
    async fn jobs_go_when_their_time_has_come() {
        let (store, clock) = (store_of(51), Arc::new(AtomicI64::new(100)));
        let (mut retention, _engine) = retention(store.clone(), &clock);
        assert!(matches!(retention.round().await, Ok(LOOK_EVERY)));
        assert_eq!(count(&store), 51);
        clock.store(131, Ordering::Relaxed);
        assert!(retention.round().await.is_ok());
        assert_eq!(count(&store), 21);
        clock.store(LATER, Ordering::Relaxed);
        assert!(retention.round().await.is_ok());
        assert_eq!(count(&store), 1, "what has not ended stays");
    }

    /// Says what it is asked for, and has a fault now and then.
    struct Faulty {
        store: MemoryStore,
        asked: Arc<Mutex<Vec<Keep>>>,
        faults: Vec<CommitError>,
    }

    impl Store for Faulty {
        fn load(&mut self, visit: &mut dyn FnMut(LiveJob)) -> Result<Loaded, LoadError> {
            self.store.load(visit)
        }

        fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
            self.store.commit(group)
        }

        fn remove(&mut self, epoch: protocol::Epoch, keep: &Keep) -> Result<Removed, CommitError> {
            self.asked.lock().unwrap().push(*keep);
            self.faults.pop().map_or_else(|| self.store.remove(epoch, keep), Err)
        }
    }

    #[tokio::test]
    async fn much_goes_in_many_steps_and_a_store_with_faults_is_asked_again_later() {
        let (store, clock) = (store_of(1_201), Arc::new(AtomicI64::new(LATER)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let faults = vec![CommitError::Refused("no".into()), CommitError::Unavailable("full".into())];
        let faulty = Faulty { store: store.clone(), asked: Arc::clone(&asked), faults };
        let (mut retention, _engine) = retention(faulty, &clock);
        assert!(matches!(retention.round().await, Ok(LOOK_EVERY)));
        assert!(matches!(retention.round().await, Ok(AFTER_REFUSAL)));
        assert_eq!(asked.lock().unwrap().len(), 2);
        assert!(retention.round().await.is_ok());
        assert_eq!(count(&store), 1);
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2 + 3);
        assert!(asked.iter().all(|keep| keep.rows_max == ROWS_MAX));
    }

    #[tokio::test]
    async fn it_is_over_when_the_store_is_another_servers_or_closed() {
        let (mut store, clock) = (store_of(3), Arc::new(AtomicI64::new(LATER)));
        let (mut retention, engine) = retention(store.clone(), &clock);
        store.load(&mut |_| {}).unwrap();
        assert!(retention.round().await.is_err());
        assert_eq!(count(&store), 3);
        let stop = tokio_util::sync::CancellationToken::new();
        stop.cancel();
        // Another epoch writes: the engine finds that out, or has nothing to write.
        let _ = engine.run(stop).await;
        retention.run().await;
    }
}
