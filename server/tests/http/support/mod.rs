//! A whole HTTP face on a real port, before a stand-in for engine and archive that the tests can look into and change.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

mod access;
mod engine;
pub(crate) mod event_groups;
pub(crate) mod facts;
mod job_filter;
mod members;
mod operations;
pub(crate) mod output;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use longshore_server::auth::Access;
use longshore_server::catalogue::{Catalogue, Definitions};
use longshore_server::engine::{CommitClock, Handle, RecordWriter};
use longshore_server::events::{self, EventSender, Events};
use longshore_server::http::{BODY_BYTES_MAX, Services, router};
use longshore_server::listener::{Limits, Listener};
use longshore_server::logs::{self, Logs};
use longshore_server::reload::Reloader;
use longshore_server::storage::Storage;
use longshore_server::store::Archive;
use longshore_server::usage::LiveUsage;
use longshore_server::ws::Machines;
use scheduler::snapshot::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use engine::StandInEngine;
use engine::answer;
use facts::{definitions, event_state, snapshot, worker_row};

/// Events that the server keeps: few, so that a test can fill the ring.
const EVENTS_KEPT: usize = 100;

/// A server under test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) stand: StandInEngine,
    pub(crate) logs: Arc<Logs>,
    /// Machine facts, as sessions would store them.
    pub(crate) machines: Arc<Machines>,
    pub(crate) usage: Arc<LiveUsage>,
    pub(crate) shutdown: CancellationToken,
    /// The same for its handlers alone: the moment in which a request arrives before the connections are told.
    pub(crate) shutdown_inside: CancellationToken,
    pub(crate) jobs_file: std::path::PathBuf,
    pub(crate) storage: Arc<Storage>,
    pub(crate) commit: CommitClock,
    /// The snapshot, as the engine would publish it.
    pub(crate) snapshot: watch::Sender<Arc<Snapshot>>,
    /// The router without a socket: only there the paused clock may run ahead.
    pub(crate) router: Router,
    pub(crate) served: tokio::task::JoinHandle<()>,
    /// The engine's end of the event feed, and the events that it has become.
    pub(crate) event_sender: EventSender,
    pub(crate) events: Events,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Open, on loopback, without a base path.
    pub(crate) async fn start() -> Self {
        Self::with(|access| access, "", Limits::default()).await
    }

    pub(crate) async fn with(guard: impl FnOnce(Access) -> Access, base_path: &str, limits: Limits) -> Self {
        let here = axum::routing::get(|| async { "here workers connect\n" });
        let workers = Router::new().route("/api/workers/connect", here);
        Self::with_workers(guard, base_path, limits, |_| workers).await
    }

    /// As [`Self::with`], with this where workers connect; it may write to the logs.
    pub(crate) async fn with_workers(
        guard: impl FnOnce(Access) -> Access,
        base_path: &str,
        limits: Limits,
        workers: impl FnOnce(Arc<Logs>) -> Router,
    ) -> Self {
        Self::within(guard, base_path, limits, workers, BODY_BYTES_MAX).await
    }

    /// As [`Self::start`], with this budget for bodies of submissions that are not committed.
    pub(crate) async fn with_body_budget(bytes: usize) -> Self {
        Self::within(|access| access, "", Limits::default(), |_| Router::new(), bytes).await
    }

    async fn within(
        guard: impl FnOnce(Access) -> Access,
        base_path: &str,
        limits: Limits,
        workers: impl FnOnce(Arc<Logs>) -> Router,
        body_bytes_max: usize,
    ) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), limits).await.unwrap();
        let address = listener.address();
        let stand = StandInEngine::default();
        let catalogue = Arc::new(Catalogue::new(Definitions::new(definitions())));
        stand.world().define(&catalogue.current());
        stand.world().workers.push(worker_row(1, "w1"));
        stand.world().workers.push(worker_row(2, "w2"));
        let (inbox, commands) = mpsc::channel(64);
        let (publish, snapshot) = watch::channel(Arc::new(snapshot()));
        tokio::spawn(answer(commands, stand.clone(), publish.clone()));
        let directory = tempfile::tempdir().unwrap();
        let jobs_file = directory.path().join("jobs.yaml");
        let logs = Logs::open(&directory.path().join("logs"), logs::Limits::default()).unwrap();
        let shutdown = CancellationToken::new();
        let shutdown_inside = shutdown.child_token();
        let machines = Arc::<Machines>::default();
        let usage = Arc::<LiveUsage>::default();
        let (storage, commit) = (Storage::of(directory.path()), CommitClock::default());
        let engine = Handle::new(inbox, snapshot, commit.clone());
        stand.world().watches = engine.watches().clone();
        let known = event_state();
        let metrics = known.metrics();
        let (event_sender, feed, events) = events::with_capacity(known, EVENTS_KEPT);
        tokio::spawn(feed.run());
        let intervals = protocol::order::Intervals::default();
        let reloader = Reloader::new(engine.clone(), catalogue.clone(), jobs_file.clone(), intervals);
        let archive: Arc<dyn Archive> = Arc::new(stand.clone());
        let notifications =
            access::no_notifications(archive.clone(), logs.clone(), catalogue.clone(), metrics.clone());
        let app = Services {
            engine,
            events: events.clone(),
            metrics,
            archive,
            record_writer: RecordWriter::closed(),
            machines: Arc::clone(&machines),
            usage: Arc::clone(&usage),
            missing_secrets: Arc::default(),
            catalogue,
            reloader: Arc::new(reloader),
            intervals,
            logs: Arc::clone(&logs),
            access: Arc::new(guard(Access::open(address))),
            records: Arc::new(access::no_records()),
            notifications: Arc::new(notifications),
            base_path: base_path.to_owned(),
            storage: storage.clone(),
            tls: None,
            body_bytes_max,
            shutdown: shutdown_inside.clone(),
        };
        let router = router(app, workers(Arc::clone(&logs)));
        let served = tokio::spawn(listener.serve(router.clone(), shutdown.clone()));
        Self {
            address,
            stand,
            logs,
            machines,
            usage,
            shutdown,
            shutdown_inside,
            jobs_file,
            storage,
            commit,
            snapshot: publish,
            router,
            served,
            event_sender,
            events,
            _directory: directory,
        }
    }

    /// A request with these headers, on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        self.say(format!("{head}\r\n{body}").as_bytes()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answered {
        self.ask("POST", path, &[("content-type", "application/json")], body).await
    }

    /// These very bytes; the answer is whatever comes until the server closes.
    pub(crate) async fn say(&self, bytes: &[u8]) -> Answered {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before it has taken everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
        Answered::parse(&answer)
    }

    /// Begins a request whose answer is read bit by bit.
    pub(crate) async fn open(&self, head: &str) -> Open {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{head}\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
        Open { stream, seen: String::new() }
    }
}

/// A request under way.
pub(crate) struct Open {
    stream: TcpStream,
    pub(crate) seen: String,
}

impl Open {
    /// Reads on until this text has come.
    pub(crate) async fn until(&mut self, text: &str) {
        let Self { stream, seen } = self;
        let reading = async {
            let mut buffer = [0; 4096];
            while !seen.contains(text) {
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the answer ended before {text:?}: {seen}");
                seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        };
        within(reading).await;
    }

    /// Reads on until the server closes.
    pub(crate) async fn until_closed(&mut self) {
        let mut rest = Vec::new();
        let _ = within(self.stream.read_to_end(&mut rest)).await;
        self.seen.push_str(&String::from_utf8_lossy(&rest));
    }

    pub(crate) async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answered {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_default();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is a problem document with this status and code.
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> serde_json::Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{self:?}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        assert!(problem["type"].as_str().unwrap().ends_with(&format!("/problems/{code}")), "{self:?}");
        problem
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size, 16) else { break };
        // The text of a compressed body is no longer as long as its chunks.
        let (Some(chunk), Some(next)) = (rest.get(..size), rest.get(size + 2..)) else {
            whole.push_str(rest);
            break;
        };
        whole.push_str(chunk);
        body = next;
    }
    whole
}

/// Nothing in a test may hang.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it should not take this long")
}
