//! A scripted server, and a worker under test.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use longshore_client::{Config, Error, OnTerm};
use protocol::order::{Assignment, Definition, Intervals, ReconcileVerdict, Reconciled, Welcome};
use protocol::report::{Hello, Inventory};
use protocol::wire::{decode_report, encode_order};
use protocol::{
    ClusterId, ContainerSpec, Epoch, Fence, JobId, Nonce, Order, Report, ReportNo, Revision, RuntimeKind,
    SUBPROTOCOL, SessionId, Token, WorkerId,
};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// Time limit for everything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(20);

/// Fails the test if the future takes too long.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}

/// The listener of the server.
pub(crate) struct Stub {
    listener: TcpListener,
}

impl Stub {
    pub(crate) async fn bind() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.expect("a free port") }
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().expect("bound").to_string()
    }

    pub(crate) async fn accept_tcp(&self) -> TcpStream {
        let tcp = soon("a connection", self.listener.accept()).await.expect("accepts").0;
        tcp.set_nodelay(true).expect("is set");
        tcp
    }

    /// The next connection after its upgrade.
    pub(crate) async fn accept(&self) -> Peer {
        self.accept_with_headers().await.0
    }

    /// The same, with the request's path and token.
    pub(crate) async fn accept_with_headers(&self) -> (Peer, String, Option<String>) {
        let tcp = self.accept_tcp().await;
        let mut path = String::new();
        let mut token = None;
        #[expect(clippy::result_large_err, reason = "the library's signature")]
        let shake = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
            path = request.uri().path().to_owned();
            let header = request.headers().get("authorization");
            token = header.map(|value| value.to_str().expect("ASCII").to_owned());
            let subprotocol = SUBPROTOCOL.parse().expect("a header");
            response.headers_mut().insert("sec-websocket-protocol", subprotocol);
            Ok(response)
        };
        let socket = soon("an upgrade", accept_hdr_async(tcp, shake)).await.expect("upgrades");
        (Peer { socket, heard: VecDeque::new() }, path, token)
    }

    /// The next connection, with a worker that is joined and reconciled: it may start attempts.
    pub(crate) async fn join(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.welcome(ReportNo(0)).await;
        peer.reconcile(ReconcileVerdict::Keep).await;
        peer
    }
}

/// A worker as the server sees it.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
    heard: VecDeque<Report>,
}

impl Peer {
    pub(crate) async fn say(&mut self, order: Order) {
        let frame = encode_order(&order).expect("fits");
        self.socket.send(Message::Binary(frame.into())).await.expect("is sent");
    }

    /// The next message; `None` at the end.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        soon("a message", self.socket.next()).await.and_then(Result::ok)
    }

    /// The next report that is no heartbeat; heartbeats are answered.
    pub(crate) async fn next(&mut self) -> Report {
        if let Some(report) = self.heard.pop_front() {
            return report;
        }
        loop {
            match self.message().await {
                Some(Message::Binary(frame)) => match decode_report(&frame).expect("is well-formed") {
                    Some(Report::Heartbeat(beat)) => self.say(Order::Pulse(beat.number)).await,
                    Some(report) => return report,
                    None => {}
                },
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("waited for a report, got {other:?}"),
            }
        }
    }

    /// The next report for which `pick` returns something; others are skipped.
    pub(crate) async fn until<T>(&mut self, mut pick: impl FnMut(Report) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(self.next().await) {
                return picked;
            }
        }
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.next().await {
            Report::Hello(hello) => hello,
            other => panic!("waited for a Hello, got {other:?}"),
        }
    }

    /// Waits for Hello and sends Welcome.
    pub(crate) async fn welcome(&mut self, last_report: ReportNo) -> Hello {
        let hello = self.hello().await;
        self.say(Order::Welcome(Welcome {
            version: 1,
            session: SessionId(1),
            epoch: Epoch(1),
            cluster: ClusterId(0xc1),
            worker: WorkerId(7),
            intervals: Intervals::default(),
            last_report,
        }))
        .await;
        hello
    }

    /// Waits for the Inventory, skips reports before it, and sends the same verdict about everything.
    pub(crate) async fn reconcile(&mut self, verdict: ReconcileVerdict) -> Inventory {
        let inventory =
            self.until(|report| if let Report::Inventory(it) = report { Some(it) } else { None }).await;
        let attempts = inventory.attempts.iter().map(|(token, _)| (*token, verdict)).collect();
        self.say(Order::Reconciled(Reconciled { attempts, last: true })).await;
        inventory
    }

    /// Hands over attempts of a definition with this environment.
    pub(crate) async fn enqueue(&mut self, jobs: impl Iterator<Item = u64>, environment: &[(&str, &str)]) {
        self.say(Order::Definitions(vec![definition(environment)])).await;
        self.say(Order::Enqueue(jobs.map(|job| assignment(job, environment)).collect())).await;
    }

    /// Waits until the worker has closed the connection; returns the code of its close frame.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        loop {
            match self.message().await {
                Some(Message::Close(frame)) => return frame.map(|frame| frame.code.into()),
                Some(_) => {}
                None => return None,
            }
        }
    }
}

/// A worker under test, with a state directory of its own.
pub(crate) struct Worker {
    pub(crate) task: JoinHandle<Result<(), Error>>,
    pub(crate) terms: mpsc::Sender<()>,
    pub(crate) dir: TempDir,
}

impl Worker {
    pub(crate) fn start(stub: &Stub) -> Self {
        Self::start_with(stub, |_| ())
    }

    pub(crate) fn start_with(stub: &Stub, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = config(stub, &dir);
        change(&mut config);
        let (terms, wishes) = mpsc::channel(4);
        Self { task: tokio::spawn(longshore_client::run(config, wishes, Arc::default())), terms, dir }
    }

    pub(crate) async fn term(&self) {
        self.terms.send(()).await.expect("it runs");
    }

    /// Waits until it has left of its own accord.
    pub(crate) async fn left(self) {
        soon("the worker to leave", self.task).await.expect("does not panic").expect("leaves without error");
    }
}

pub(crate) fn config(stub: &Stub, dir: &TempDir) -> Config {
    let mut config = Config::new(&stub.address()).expect("an address");
    config.name = "w1".to_owned();
    config.state_dir = dir.path().to_path_buf();
    config.slots = 2;
    config.backlog = 2;
    config.runtimes.docker = None;
    config.runtimes.fake = true;
    config.on_term = OnTerm::Drain;
    config
}

pub(crate) fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(job), nonce: Nonce(1) }
}

/// One definition for each environment.
fn revision(environment: &[(&str, &str)]) -> Revision {
    let text = format!("{environment:?}");
    Revision(text.bytes().fold(7, |sum: u128, byte| sum.wrapping_mul(257).wrapping_add(u128::from(byte))))
}

pub(crate) fn definition(environment: &[(&str, &str)]) -> Definition {
    let environment_owned =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Definition {
        revision: revision(environment),
        name: "resize".to_owned(),
        container: ContainerSpec {
            runtime: RuntimeKind::Fake,
            environment: environment_owned,
            stop_grace: Duration::from_secs(1),
            ..ContainerSpec::default()
        },
    }
}

pub(crate) fn assignment(job: u64, environment: &[(&str, &str)]) -> Assignment {
    Assignment {
        gpus: Default::default(),
        token: token(job),
        priority: 0,
        waited: Duration::ZERO,
        revision: revision(environment),
        overrides: None,
        time_left: None,
        memory_bytes: None,
        secrets: None,
    }
}
