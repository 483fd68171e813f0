//! Worker sockets count as connections until their Hello is accepted, and only for a limited time.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use longshore_server::engine::{FromSession, SessionInbox, ToSession};
use longshore_server::listener::Limits;
use longshore_server::ws::{self, WorkerAcceptor};
use protocol::order::{Intervals, Welcome};
use protocol::report::{Hello, Inventory, Phase};
use protocol::wire::{decode_order, encode_report};
use protocol::{
    ClusterId, Epoch, Fence, Incarnation, JobId, Nonce, Order, Report, ReportNo, SUBPROTOCOL, SessionId,
    Token, VERSIONS, WorkerId,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

use crate::support::{Server, StandInEngine, within};

type Socket = WebSocketStream<TcpStream>;

#[tokio::test]
async fn sockets_without_hello_count_as_connections() {
    let (server, _engine) = start(Limits { connections: 1, reserve: 2, ..Limits::default() }).await;
    let sockets = [open_socket(&server).await, open_socket(&server).await, open_socket(&server).await];
    assert_eq!(server.get("/healthz").await.status, 0, "one more is turned away");
    drop(sockets);
    let freed = async {
        let mut interval = tokio::time::interval(Duration::from_millis(5));
        while server.get("/api/jobs").await.status != 200 {
            interval.tick().await;
        }
    };
    within(freed).await;
}

#[tokio::test]
async fn a_worker_that_is_welcome_leaves_its_place_to_others() {
    let (server, mut engine) = start(Limits { connections: 1, reserve: 0, ..Limits::default() }).await;
    let mut worker = open_socket(&server).await;
    let said = encode_report(&Report::Hello(hello())).unwrap();
    worker.send(Message::Binary(said.into())).await.unwrap();
    let opened = within(engine.recv()).await.unwrap();
    let FromSession::Opened { hello, outbox, .. } = opened else { panic!("{opened:?}") };
    assert_eq!(server.get("/healthz").await.status, 0, "it is not welcome yet");
    outbox.send(ToSession::Order(Order::Welcome(welcome(hello.session)))).unwrap();
    let answer = order(&mut worker).await;
    assert!(matches!(answer, Order::Welcome(_)), "{answer:?}");
    assert_eq!(server.get("/api/jobs").await.status, 200);
}

/// A session that were closed at once would come again with the same inventory, and meet the same error.
#[tokio::test]
async fn an_inventory_waits_for_an_archive_that_fails_for_a_moment() {
    let archive = StandInEngine::default();
    archive.world().failing_lookups = 2;
    let (server, mut engine) = start_with(archive.clone(), Limits::default()).await;
    let mut worker = open_socket(&server).await;
    let listed = Inventory {
        attempts: vec![(Token { job: JobId(1), fence: Fence(1), nonce: Nonce(1) }, Phase::Running)],
        foreign: Vec::new(),
        runtimes: Vec::new(),
        last: true,
    };
    for report in [Report::Hello(hello()), Report::Inventory(listed)] {
        worker.send(Message::Binary(encode_report(&report).unwrap().into())).await.unwrap();
    }
    let opened = within(engine.recv()).await.unwrap();
    let FromSession::Opened { outbox: _outbox, .. } = opened else { panic!("{opened:?}") };
    let reported = within(engine.recv()).await.unwrap();
    let FromSession::Reported(_, reports) = reported else { panic!("{reported:?}") };
    assert!(matches!(reports[..], [Report::Inventory(_)]), "{reports:?}");
    assert_eq!(archive.world().failing_lookups, 0);
}

/// A server whose workers knock at a real acceptor, behind which the test is the engine.
async fn start(limits: Limits) -> (Server, mpsc::Receiver<FromSession>) {
    start_with(StandInEngine::default(), limits).await
}

/// As [`start`], with this archive.
async fn start_with(archive: StandInEngine, limits: Limits) -> (Server, mpsc::Receiver<FromSession>) {
    let (inbox, engine) = mpsc::channel(64);
    let gate = SessionInbox { inbox, epoch: Epoch(1) };
    let (archive, shutdown) = (Arc::new(archive), CancellationToken::new());
    let server = Server::with_workers(
        |access| access,
        "",
        limits,
        |logs| {
            ws::router(WorkerAcceptor::new(
                gate,
                Arc::default(),
                archive,
                logs,
                Intervals::default(),
                shutdown,
            ))
        },
    );
    (server.await, engine)
}

/// Opens a socket, and says nothing.
async fn open_socket(server: &Server) -> Socket {
    let address = format!("ws://{}/api/workers/connect", server.address);
    let request = ClientRequestBuilder::new(address.parse().unwrap()).with_sub_protocol(SUBPROTOCOL);
    let tcp = TcpStream::connect(server.address).await.unwrap();
    within(client_async(request, tcp)).await.unwrap().0
}

/// Waits for an order.
async fn order(worker: &mut Socket) -> Order {
    let search = async {
        loop {
            if let Message::Binary(frame) = worker.next().await.unwrap().unwrap() {
                return decode_order(&frame).unwrap().unwrap();
            }
        }
    };
    within(search).await
}

fn hello() -> Hello {
    Hello {
        resources: Default::default(),
        versions: VERSIONS,
        name: "one".to_owned(),
        secret: [1; 32],
        cluster: None,
        rejoin: false,
        incarnation: Incarnation(1),
        process: 1,
        engine: None,
        version: "0".to_owned(),
        slots: 1,
        backlog: 1,
        labels: Vec::new(),
        runtimes: Vec::new(),
    }
}

fn welcome(session: SessionId) -> Welcome {
    Welcome {
        version: VERSIONS.highest,
        session,
        epoch: Epoch(1),
        cluster: ClusterId(1),
        worker: WorkerId(1),
        intervals: Intervals::default(),
        last_report: ReportNo(0),
    }
}
