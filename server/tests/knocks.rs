//! Sockets of workers among the connections: whoever knocks holds a place until it is welcome, and so not without end.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

mod http_support;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http_support::{Server, Stand, within};
use longshore_server::engine::{FromSession, Gate, ToSession};
use longshore_server::listener::Limits;
use longshore_server::ws::{self, Door};
use protocol::order::{Intervals, Welcome};
use protocol::report::Hello;
use protocol::wire::{decode_order, encode_report};
use protocol::{
    ClusterId, Epoch, Incarnation, Order, Report, ReportNo, SUBPROTOCOL, SessionId, VERSIONS, WorkerId,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

type Socket = WebSocketStream<TcpStream>;

#[tokio::test]
async fn sockets_on_which_nobody_says_hello_count_as_connections() {
    let (server, _engine) = start(Limits { connections: 1, reserve: 2, ..Limits::default() }).await;
    let knocks = [knock(&server).await, knock(&server).await, knock(&server).await];
    assert_eq!(server.get("/healthz").await.status, 0, "one more is turned away");
    drop(knocks);
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
    let mut worker = knock(&server).await;
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

/// A server whose workers knock at a real door, behind which the test is the engine.
async fn start(limits: Limits) -> (Server, mpsc::Receiver<FromSession>) {
    let (inbox, engine) = mpsc::channel(64);
    let gate = Gate { inbox, epoch: Epoch(1) };
    let (archive, leaving) = (Arc::new(Stand::default()), CancellationToken::new());
    let server = Server::with_workers(
        |access| access,
        "",
        limits,
        |logs| ws::router(Door::new(gate, Arc::default(), archive, logs, Intervals::default(), leaving)),
    );
    (server.await, engine)
}

/// Opens a socket, and says nothing.
async fn knock(server: &Server) -> Socket {
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
