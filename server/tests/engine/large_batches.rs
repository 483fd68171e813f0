//! Large batches in a real engine, before a store that commits a group only when the test lets it: whatever is looked at between two
//! slices, there is nothing of the batch; and everybody else goes on.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use longshore_server::engine::Busy;
use longshore_server::store::sqlite::SqliteStore;
use longshore_server::store::{
    Archive, CommitError, DefinitionRemoval, Group, JobFilter, LoadError, LoadItem, Loaded, RecordChange,
    Removed, RetentionCutoffs, Store,
};
use protocol::{Epoch, JobId, Revision};
use scheduler::input::IdempotencyKey;
use scheduler::job::State;
use scheduler::new_jobs::NewJob;
use scheduler::step::{Accepted, Answer, Rejection};
use tempfile::{TempDir, tempdir};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::support::{RunningEngine, definitions};

/// A dozen slices of the server's own size: another request in between needs two or three groups.
const MEMBERS: usize = 12_500;
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How many commits the store may make, and how many it has made.
#[derive(Debug, Default)]
struct Gate {
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Gate {
    fn allow(&self, commits: u64) {
        self.counts.lock().unwrap().0 += commits;
        self.changed.notify_all();
    }

    /// Lets one more group through, and waits until it has been committed.
    async fn pass(&self) {
        let before = self.done();
        self.allow(1);
        until("a group is committed", || self.done() > before).await;
    }

    fn done(&self) -> u64 {
        self.counts.lock().unwrap().1
    }

    fn enter(&self) {
        let mut counts = self.changed.wait_while(self.counts.lock().unwrap(), |it| it.0 == 0).unwrap();
        counts.0 -= 1;
    }

    fn leave(&self) {
        self.counts.lock().unwrap().1 += 1;
    }
}

struct Gated {
    store: SqliteStore,
    gate: Arc<Gate>,
}

impl Store for Gated {
    fn load(&mut self, visit: &mut dyn FnMut(LoadItem<'_>)) -> Result<Loaded, LoadError> {
        self.store.load(visit)
    }

    fn commit(&mut self, group: &Group) -> Result<(), CommitError> {
        self.gate.enter();
        let result = self.store.commit(group);
        self.gate.leave();
        result
    }

    fn remove(&mut self, epoch: Epoch, cutoffs: &RetentionCutoffs) -> Result<Removed, CommitError> {
        self.store.remove(epoch, cutoffs)
    }

    fn remove_by_definition(
        &mut self,
        epoch: Epoch,
        removal: &DefinitionRemoval,
    ) -> Result<Removed, CommitError> {
        self.store.remove_by_definition(epoch, removal)
    }

    fn change_record(&mut self, epoch: Epoch, change: &RecordChange) -> Result<(), CommitError> {
        self.store.change_record(epoch, change)
    }
}

/// An engine with a store in a directory of its own.
struct Stage {
    directory: TempDir,
    gate: Arc<Gate>,
    engine: RunningEngine,
    revisions: HashMap<String, Revision>,
}

impl Stage {
    async fn set(directory: TempDir) -> Self {
        let definitions =
            definitions("jobs: { resize: { image: 'resize:1' }, backup: { image: 'backup:1' } }");
        let revisions = definitions.iter().map(|it| (it.definition.name.clone(), it.definition.revision));
        let revisions = revisions.collect();
        let gate = Arc::<Gate>::default();
        let gated = |store| Box::new(Gated { store, gate: Arc::clone(&gate) }) as Box<dyn Store>;
        let engine = RunningEngine::start_behind(directory.path(), &definitions, gated);
        let stage = Self { directory, gate, engine, revisions };
        // The definitions.
        stage.gate.pass().await;
        stage
    }

    fn submit(
        &self,
        name: &str,
        count: usize,
        key: Option<IdempotencyKey>,
    ) -> JoinHandle<Result<Answer, Busy>> {
        let new = NewJob { revision: self.revisions[name], ..NewJob::default() };
        let (handle, jobs) = (self.engine.handle.clone(), vec![new; count]);
        tokio::spawn(async move {
            handle.submit(jobs.into(), (count > 1).then(Default::default), false, key).await
        })
    }

    fn key(&self, digest: u128) -> Option<IdempotencyKey> {
        let (found, read_at) = self.engine.archive.key("http:k").unwrap();
        Some(IdempotencyKey { key: "http:k".into(), digest, found, read_at })
    }

    /// The newest ones.
    fn listed(&self) -> Vec<u64> {
        let filter = JobFilter { limit: 3, ..JobFilter::default() };
        self.engine.archive.jobs(&filter).unwrap().iter().map(|row| row.job.0).collect()
    }

    async fn leave(self) -> TempDir {
        self.gate.allow(1_000);
        self.engine.stop().await;
        self.directory
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = interval(Duration::from_millis(1));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        while !holds() {
            looks.tick().await;
        }
    };
    assert!(timeout(WAIT_TIMEOUT, looking).await.is_ok(), "not within {WAIT_TIMEOUT:?}: {what}");
}

fn accepted(answer: Result<Answer, Busy>) -> Accepted {
    match answer {
        Ok(Answer::Accepted(it)) => it,
        other => panic!("not accepted: {other:?}"),
    }
}

#[tokio::test]
async fn between_two_slices_there_is_nothing_of_the_batch_and_others_go_on() {
    let stage = Stage::set(tempdir().unwrap()).await;
    let batch = stage.submit("resize", MEMBERS, None);
    // The first slice.
    stage.gate.pass().await;
    assert!(stage.listed().is_empty());
    assert_eq!(stage.engine.archive.job(JobId(1)).unwrap(), None);
    let single = stage.submit("backup", 1, None);
    let handle = stage.engine.handle.clone();
    let others = tokio::spawn(async move {
        let cancelled = handle.cancel(JobId(1), "ann".into());
        tokio::join!(cancelled, handle.ended(JobId(1)))
    });
    while !(single.is_finished() && others.is_finished()) {
        stage.gate.pass().await;
        assert!(!batch.is_finished(), "a later request was held up");
        // The answer follows its commit.
        tokio::task::yield_now().await;
    }
    let behind = MEMBERS as u64 + 1;
    assert_eq!(accepted(single.await.unwrap()).first, JobId(behind));
    let (cancelled, ended) = others.await.unwrap();
    assert!(matches!(cancelled, Ok(Answer::Rejected(Rejection::NotLive))));
    assert_eq!(ended.unwrap(), None, "nobody waits for its end");
    assert_eq!(stage.listed(), [behind]);
    assert!(stage.engine.handle.snapshot().live_jobs <= 1);

    stage.gate.allow(1_000);
    let batch = accepted(batch.await.unwrap());
    assert_eq!((batch.first, batch.count as usize, batch.state), (JobId(1), MEMBERS, State::Queued));
    assert_eq!(stage.listed(), [behind, behind - 1, behind - 2]);
    for member in [1, MEMBERS as u64] {
        let row = stage.engine.archive.job(JobId(member)).unwrap().unwrap().row;
        assert_eq!((row.batch, row.created_at), (Some(JobId(1)), batch.created_at));
    }
    stage.leave().await;
}

#[tokio::test]
async fn a_repeated_request_during_a_batch_gets_the_same_answer_and_makes_no_jobs() {
    let stage = Stage::set(tempdir().unwrap()).await;
    let first = stage.submit("resize", MEMBERS, stage.key(7));
    stage.gate.pass().await;
    let again = stage.submit("resize", MEMBERS, stage.key(7));
    let other = stage.submit("backup", 1, stage.key(8));
    stage.gate.pass().await;
    assert!(!again.is_finished() && !other.is_finished(), "nothing is true yet");
    stage.gate.allow(1_000);
    let first = accepted(first.await.unwrap());
    assert_eq!(first.first, JobId(1));
    let Ok(Answer::Replayed(holder)) = again.await.unwrap() else { panic!("not replayed") };
    assert_eq!((holder.job, holder.count as usize), (JobId(1), MEMBERS));
    assert!(matches!(other.await.unwrap(), Ok(Answer::Rejected(Rejection::KeyMismatch(_)))));
    let late = stage.submit("resize", MEMBERS, stage.key(7)).await.unwrap();
    assert!(matches!(late, Ok(Answer::Replayed(_))), "{late:?}");
    assert_eq!(stage.listed()[0], MEMBERS as u64);
    stage.leave().await;
}

#[tokio::test]
async fn jobs_yaml_may_be_read_again_meanwhile() {
    let stage = Stage::set(tempdir().unwrap()).await;
    let batch = stage.submit("resize", MEMBERS, None);
    stage.gate.pass().await;
    for image in ["backup:2", "backup:3"] {
        let others = definitions(&format!("jobs: {{ backup: {{ image: '{image}' }} }}"));
        stage.engine.handle.define(Arc::new(others)).unwrap();
        stage.gate.pass().await;
    }
    stage.gate.allow(1_000);
    assert_eq!(accepted(batch.await.unwrap()).count as usize, MEMBERS);
    let row = stage.engine.archive.job(JobId(MEMBERS as u64)).unwrap().unwrap().row;
    assert_eq!(row.revision, stage.revisions["resize"]);
    let directory = stage.leave().await;
    let live = Stage::set(directory).await.engine.handle.snapshot().live_jobs;
    assert_eq!(live as usize, MEMBERS, "and its members outlive a restart");
}

#[tokio::test]
async fn an_interrupted_batch_leaves_no_jobs() {
    let stage = Stage::set(tempdir().unwrap()).await;
    let batch = stage.submit("resize", MEMBERS, stage.key(7));
    stage.gate.pass().await;
    let directory = stage.leave().await;
    assert!(batch.await.unwrap().is_err(), "nobody can say that it was accepted");
    let stage = Stage::set(directory).await;
    assert!(stage.listed().is_empty());
    assert_eq!(stage.engine.handle.snapshot().live_jobs, 0);
    let again = stage.submit("resize", MEMBERS, stage.key(7));
    stage.gate.allow(1_000);
    assert_eq!(accepted(again.await.unwrap()).first, JobId(MEMBERS as u64 + 1), "numbers are given once");
    stage.leave().await;
}
