//! What somebody waits for is shown when it is answered: who has joined, and what an operator has ordered, in a real engine.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::time::Duration;

use longshore_server::catalogue::Definitions;
use longshore_server::clock;
use longshore_server::engine::{Engine, FromSession, Heard, ToSession, queue};
use longshore_server::store::memory::MemoryStore;
use protocol::order::Intervals;
use protocol::{Incarnation, Order, SessionId, VERSIONS, WorkerId};
use scheduler::input::{Connected, Operation};
use scheduler::step::Answer;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// More than fit between two snapshots that nobody waits for.
const TIMES: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn who_joins_and_what_is_ordered_is_shown_with_the_answer() {
    let evidence = tempfile::tempdir().unwrap();
    let (engine, ends) = Engine::load(
        Box::new(MemoryStore::default()),
        &Definitions::new(Vec::new()),
        Intervals::default(),
        usize::MAX,
        evidence.path().into(),
    )
    .unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(engine.run(stop.clone()));
    for number in 1..=TIMES {
        let (outbox, mut inlet) = queue();
        let heard = Heard::at(clock::now().up);
        let opened = FromSession::Opened { hello: Box::new(hello(number)), outbox, heard };
        ends.gate.inbox.send(opened).await.unwrap();
        let mut said = Vec::new();
        timeout(PATIENCE, inlet.take(&mut said, 1)).await.unwrap();
        assert!(matches!(said[0], ToSession::Order(Order::Welcome(_))), "{said:?}");
        let id = WorkerId(number);
        let cordoned = || {
            let snapshot = ends.handle.snapshot();
            snapshot.workers.iter().find(|worker| worker.id == id).map(|worker| worker.cordoned)
        };
        assert_eq!(cordoned(), Some(false), "worker {number} is welcome");
        for (operation, shown) in [(Operation::Cordon, true), (Operation::Uncordon, false)] {
            assert_eq!(ends.handle.operate(id, operation).await.unwrap(), Answer::Done);
            assert_eq!(cordoned(), Some(shown), "worker {number}");
        }
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}

fn hello(number: u64) -> Connected {
    Connected {
        session: SessionId(number),
        name: format!("w{number}").into(),
        secret_hash: [u8::try_from(number).unwrap(); 32],
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
    }
}
