//! Joins, operations, and the facts behind an explanation are visible when they are answered, in a real engine.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::path::Path;
use std::time::Duration;

use longshore_server::catalogue::Definitions;
use longshore_server::clock;
use longshore_server::engine::{FromSession, LastHeard, OutboxReceiver, RefusedSession, ToSession, queue};
use longshore_server::store::Archive as _;
use protocol::{Incarnation, JobId, Order, SessionId, VERSIONS, WorkerId};
use scheduler::explain::{Obstacle, PlacementVerdict};
use scheduler::input::{Connected, Operation};
use scheduler::job::State;
use scheduler::new_jobs::NewJob;
use scheduler::origin::Origin;
use scheduler::step::Answer;
use tokio::time::timeout;

use crate::support::{RunningEngine, definitions};

/// More than a periodic snapshot can have shown.
const TIMES: u64 = 20;
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn joins_and_operations_are_visible_with_their_answer() {
    let data = tempfile::tempdir().unwrap();
    let engine = RunningEngine::start(data.path(), &Definitions::new(Vec::new()));
    for number in 1..=TIMES {
        let _inlet = connect(&engine, number).await;
        let id = WorkerId(number);
        let cordoned = || {
            let snapshot = engine.handle.snapshot();
            snapshot.workers.iter().find(|worker| worker.id == id).map(|worker| worker.cordoned)
        };
        assert_eq!(cordoned(), Some(false), "worker {number} is welcome");
        for (operation, shown) in [
            (Operation::Cordon { until: None, origin: Origin::default() }, true),
            (Operation::Uncordon, false),
        ] {
            assert_eq!(engine.handle.operate(id, operation).await.unwrap(), Answer::Done);
            assert_eq!(cordoned(), Some(shown), "worker {number}");
        }
    }
    engine.stop().await;
}

/// The rule: ten thousand new workers a minute.
#[tokio::test]
async fn a_worker_too_many_in_a_minute_is_told_so() {
    let data = tempfile::tempdir().unwrap();
    let engine = RunningEngine::start(data.path(), &Definitions::new(Vec::new()));
    let mut last = None;
    for number in 1..=10_001 {
        last = Some(open_session(&engine, number).await);
    }
    let mut said = Vec::new();
    timeout(WAIT_TIMEOUT, last.unwrap().take(&mut said, 1)).await.unwrap();
    assert!(matches!(said[0], ToSession::Refuse(RefusedSession::TooManyJoins)), "{said:?}");
    engine.stop().await;
}

#[tokio::test]
async fn what_an_explanation_says_is_visible_with_it() {
    let data = tempfile::tempdir().unwrap();
    let engine = start_with_job(data.path()).await;
    for number in 1..=TIMES {
        let _inlet = connect(&engine, number).await;
        let closed = FromSession::Closed(SessionId(number), Vec::new());
        engine.sessions.inbox.send(closed).await.unwrap();
        let id = WorkerId(number);
        let until_offline = async {
            loop {
                let explanation = engine.handle.explain(JobId(1)).await.unwrap().unwrap();
                let snapshot = engine.handle.snapshot();
                let verdict = &explanation.workers.iter().find(|it| it.worker == id).unwrap().verdict;
                match verdict {
                    PlacementVerdict::Unable(them) if them.contains(&Obstacle::Offline) => return snapshot,
                    _ => {}
                }
            }
        };
        let snapshot = timeout(WAIT_TIMEOUT, until_offline).await.unwrap();
        assert!(snapshot.workers.get(id).is_none(), "worker {number} is shown as connected");
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_watcher_of_a_job_wakes_when_a_commit_has_ended_it() {
    let data = tempfile::tempdir().unwrap();
    let engine = start_with_job(data.path()).await;
    let mut watch = engine.handle.watch(JobId(1));
    engine.handle.cancel(JobId(1), "ann".into()).await.unwrap();
    timeout(WAIT_TIMEOUT, watch.changed()).await.expect("the end wakes it");
    assert_eq!(
        engine.archive.job(JobId(1)).unwrap().unwrap().row.state,
        State::Cancelled,
        "and is in the archive"
    );
    engine.stop().await;
}

/// An engine with job 1, for which there is no worker.
async fn start_with_job(data: &Path) -> RunningEngine {
    let definitions = definitions("jobs: { resize: { image: 'resize:1' } }");
    let revision = definitions.iter().next().unwrap().definition.revision;
    let engine = RunningEngine::start(data, &definitions);
    let new = NewJob { revision, ..NewJob::default() };
    engine.handle.submit(vec![new].into(), None, false, None).await.unwrap();
    engine
}

/// A worker that is welcome.
async fn connect(engine: &RunningEngine, number: u64) -> OutboxReceiver {
    let mut inlet = open_session(engine, number).await;
    let mut said = Vec::new();
    timeout(WAIT_TIMEOUT, inlet.take(&mut said, 1)).await.unwrap();
    assert!(matches!(said[0], ToSession::Order(Order::Welcome(_))), "{said:?}");
    inlet
}

/// The Hello of a new worker.
async fn open_session(engine: &RunningEngine, number: u64) -> OutboxReceiver {
    let (outbox, inlet) = queue();
    let heard = LastHeard::at(clock::now().up);
    let opened = FromSession::Opened { hello: Box::new(hello(number)), outbox, heard };
    engine.sessions.inbox.send(opened).await.unwrap();
    inlet
}

fn hello(number: u64) -> Connected {
    let mut secret_hash = [0; 32];
    secret_hash[..8].copy_from_slice(&number.to_le_bytes());
    Connected {
        resources: Default::default(),
        session: SessionId(number),
        name: format!("w{number}").into(),
        secret_hash,
        cluster: None,
        rejoin: false,
        incarnation: Incarnation(1),
        process: number,
        versions: VERSIONS,
        engine: None,
        version: "0.1.0".into(),
        slots: 1,
        backlog: 0,
        labels: Vec::new(),
        runtimes: Vec::new(),
        address: "here".into(),
        join: Default::default(),
    }
}
