//! `GET /api/workers/connect`: upgrade, first frame, identity. Who may knock at all is checked before, by the router's auth layer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::StreamExt;
use protocol::close::{self, Close};
use protocol::order::Intervals;
use protocol::report::Hello;
use protocol::wire::{self, FRAME_BYTES_MAX};
use protocol::{Report, SessionId};
use scheduler::input::Connected;
use sha2::{Digest, Sha256};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WireError, Message};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::upgrade::{Socket, Upgrade};
use super::{Machines, reader, session};
use crate::engine::{Bodies, Gate};
use crate::listener::Peer;
use crate::logs::Logs;
use crate::store::Archive;

/// A worker must say Hello within this time (BAD-INPUTS.md row 76).
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// tungstenite allocates its read buffer per connection at once: small, for a thousand idle workers.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Written to the socket at the latest when this much has been gathered.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// What may wait for a worker that does not read before its session is closed.
const WRITE_BUFFER_BYTES_MAX: usize = 4 << 20;

/// What sessions need of the rest of the server.
#[derive(Clone)]
pub struct Door {
    /// Where reports go.
    pub gate: Gate,
    /// What recently submitted jobs add to their definitions.
    pub bodies: Arc<Bodies>,
    /// What older ones add.
    pub archive: Arc<dyn Archive>,
    /// Where output goes.
    pub logs: Arc<Logs>,
    /// What workers tell of their machines.
    pub machines: Arc<Machines>,
    /// How long silence is borne.
    pub intervals: Intervals,
    /// Cancelled when the server leaves: each session says so and closes.
    pub leaving: CancellationToken,
    open: TaskTracker,
    sessions: Arc<AtomicU32>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Door {
    /// A door to this engine.
    #[must_use]
    pub fn new(
        gate: Gate,
        bodies: Arc<Bodies>,
        archive: Arc<dyn Archive>,
        logs: Arc<Logs>,
        intervals: Intervals,
        leaving: CancellationToken,
    ) -> Self {
        Self {
            gate,
            bodies,
            archive,
            logs,
            machines: Arc::default(),
            intervals,
            leaving,
            open: TaskTracker::new(),
            sessions: Arc::default(),
        }
    }

    /// Waits until every session has ended, or until `patience` runs out. Call it when the server leaves.
    pub async fn empty(&self, patience: Duration) {
        self.open.close();
        // Whoever is still there is closed without a word when the process ends.
        let _ = tokio::time::timeout(patience, self.open.wait()).await;
    }

    /// A number for a new session: unique over all epochs, since it is kept with the attempts that were handed over on it.
    fn next_session(&self) -> SessionId {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId((self.gate.epoch.0 << 32) | u64::from(number))
    }
}

/// The one route of workers, for `http::router` to take in: its requests have passed the guards there.
pub fn router(door: Door) -> Router {
    Router::new().route("/api/workers/connect", get(connect)).with_state(door)
}

async fn connect(State(door): State<Door>, Extension(peer): Extension<Peer>, upgrade: Upgrade) -> Response {
    let answer = upgrade.answer();
    let open = door.open.clone();
    open.spawn(async move {
        if let Some(socket) = upgrade.socket(limits()).await {
            greet(door, socket, peer).await;
        }
    });
    answer
}

fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
}

async fn greet(door: Door, mut socket: Socket, peer: Peer) {
    let Peer { address, place, .. } = peer;
    let first = tokio::time::timeout(HELLO_WITHIN, first_message(&mut socket)).await;
    match read_hello(first.ok().flatten()) {
        Ok(hello) => {
            let connected = connected(&hello, door.next_session(), address);
            let session = connected.session.0;
            tracing::debug!(worker = %hello.name, session, peer = %address, "worker connected");
            session::serve(door, socket, connected, place).await;
        }
        Err(close) => {
            tracing::info!(peer = %address, code = close.code, reason = close.reason, "worker refused");
            session::say_goodbye(&mut socket, close).await;
        }
    }
}

/// The first message that says something: a ping may come at any time.
async fn first_message(socket: &mut Socket) -> Option<Result<Message, WireError>> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            first => return first,
        }
    }
}

fn read_hello(first: Option<Result<Message, WireError>>) -> Result<Box<Hello>, Close> {
    match first {
        Some(Ok(Message::Binary(frame))) => match wire::decode_report(&frame) {
            Ok(Some(Report::Hello(hello))) => Ok(Box::new(hello)),
            Ok(_) => Err(close::HELLO_EXPECTED.because("the first message was another")),
            Err(error) => Err(error.close()),
        },
        Some(Ok(Message::Text(_))) => Err(close::TEXT_FRAME.plain()),
        Some(Ok(_)) => Err(close::HELLO_EXPECTED.because("the first message was not binary")),
        Some(Err(error)) => {
            Err(reader::broken(&error).unwrap_or_else(|| close::HELLO_EXPECTED.because("the socket broke")))
        }
        None => Err(close::HELLO_EXPECTED.because("none came in time")),
    }
}

fn connected(hello: &Hello, session: SessionId, peer: SocketAddr) -> Connected {
    Connected {
        session,
        name: hello.name.as_str().into(),
        secret_hash: Sha256::digest(hello.secret).into(),
        cluster: hello.cluster,
        rejoin: hello.rejoin,
        incarnation: hello.incarnation,
        process: hello.process,
        versions: hello.versions,
        engine: hello.engine.clone(),
        version: hello.version.clone(),
        slots: hello.slots,
        backlog: hello.backlog,
        labels: hello.labels.clone(),
        runtimes: hello.runtimes.clone(),
        address: peer.to_string(),
    }
}
