//! `GET /api/workers/connect`: upgrade, first frame, identity. The middleware of the router has checked access before.

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
use scheduler::input::{Connected, JoinPermit};
use sha2::{Digest, Sha256};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WireError, Message};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::join_audit::JoinAudit;
use super::secrets::{SecretSources, SessionSecrets};
use super::upgrade::{Socket, Upgrade};
use super::{Machines, reader, session};
use crate::auth::actor::Actor;
use crate::auth::records::AccessRecords;
use crate::config::WorkerLabels;
use crate::engine::{OverridesCache, SessionInbox};
use crate::listener::Peer;
use crate::logs::Logs;
use crate::registries::Registries;
use crate::secrets::SecretsDir;
use crate::store::Archive;
use crate::traces::Tracer;
use crate::usage::LiveUsage;

/// A worker must send Hello within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// tungstenite allocates its read buffer per connection at once: small, because of a thousand idle workers.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Bytes after which buffered frames are written to the socket.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Bytes that may wait for a worker that does not read; above it the session is closed.
const WRITE_BUFFER_BYTES_MAX: usize = 4 << 20;

/// The parts of the server that sessions use.
#[derive(Clone)]
pub struct WorkerAcceptor {
    /// The inbox of the engine.
    pub gate: SessionInbox,
    /// Overrides of recently submitted jobs.
    pub overrides: Arc<OverridesCache>,
    /// Overrides of older jobs, and attempts of workers.
    pub archive: Arc<dyn Archive>,
    /// The output of containers.
    pub logs: Arc<Logs>,
    /// Machine facts of connected workers.
    pub machines: Arc<Machines>,
    /// Samples of running attempts.
    pub usage: Arc<LiveUsage>,
    /// Heartbeat and lease of workers.
    pub intervals: Intervals,
    /// Labels that workers may claim.
    pub worker_labels: Arc<WorkerLabels>,
    /// The secrets of jobs.
    pub secrets: Option<Arc<SecretsDir>>,
    /// Logins for registries.
    pub registries: Option<Arc<Registries>>,
    /// Gets the workers that join, and those that are refused.
    pub records: Option<Arc<AccessRecords>>,
    /// Names the spans of attempts, if traces are exported.
    pub tracer: Option<Arc<Tracer>>,
    /// Cancelled at shutdown: each session sends GoAway and closes.
    pub leaving: CancellationToken,
    open: TaskTracker,
    sessions: Arc<AtomicU32>,
}

impl std::fmt::Debug for WorkerAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerAcceptor").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl WorkerAcceptor {
    /// An acceptor for this engine.
    #[must_use]
    pub fn new(
        gate: SessionInbox,
        overrides: Arc<OverridesCache>,
        archive: Arc<dyn Archive>,
        logs: Arc<Logs>,
        intervals: Intervals,
        leaving: CancellationToken,
    ) -> Self {
        Self {
            gate,
            overrides,
            archive,
            logs,
            machines: Arc::default(),
            usage: Arc::default(),
            intervals,
            worker_labels: Arc::default(),
            secrets: None,
            registries: None,
            records: None,
            tracer: None,
            leaving,
            open: TaskTracker::new(),
            sessions: Arc::default(),
        }
    }

    /// Lets workers claim these labels only.
    #[must_use]
    pub fn with_worker_labels(self, labels: WorkerLabels) -> Self {
        Self { worker_labels: Arc::new(labels), ..self }
    }

    /// Sends secrets of this directory with attempts.
    #[must_use]
    pub fn with_secrets(self, secrets: Option<Arc<SecretsDir>>) -> Self {
        Self { secrets, ..self }
    }

    /// Sends these logins for registries with attempts.
    #[must_use]
    pub fn with_registries(self, registries: Option<Arc<Registries>>) -> Self {
        Self { registries, ..self }
    }

    /// Writes workers that join into the audit log of these records.
    #[must_use]
    pub fn with_records(self, records: Arc<AccessRecords>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// Hands the spans of attempts to their programs, as parents of what these trace.
    #[must_use]
    pub fn with_tracer(self, tracer: Option<Arc<Tracer>>) -> Self {
        Self { tracer, ..self }
    }

    /// Waits at shutdown until every session has ended, or until the timeout.
    pub async fn wait_closed(&self, timeout: Duration) {
        self.open.close();
        // The remaining sessions end with the process, without a close frame.
        let _ = tokio::time::timeout(timeout, self.open.wait()).await;
    }

    /// A new session id: unique over all epochs, since the store keeps it with assigned attempts.
    fn next_session(&self) -> SessionId {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        SessionId((self.gate.epoch.0 << 32) | u64::from(number))
    }
}

/// The route of workers, to be merged into `http::router`, whose middleware checks access.
pub fn router(acceptor: WorkerAcceptor) -> Router {
    Router::new().route("/api/workers/connect", get(connect)).with_state(acceptor)
}

async fn connect(
    State(acceptor): State<WorkerAcceptor>,
    Extension(peer): Extension<Peer>,
    upgrade: Upgrade,
) -> Response {
    let answer = upgrade.answer();
    let open = acceptor.open.clone();
    let actor = Actor::current();
    open.spawn(async move {
        if let Some(socket) = upgrade.socket(limits()).await {
            accept_worker(acceptor, socket, peer, actor).await;
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

/// Waits for the Hello. From the Welcome on the session stands for the worker, whose token may end then; before that, it ends with the token.
async fn accept_worker(acceptor: WorkerAcceptor, mut socket: Socket, peer: Peer, actor: Arc<Actor>) {
    let Peer { address, permit, is_tls, .. } = peer;
    let is_private = is_tls || address.ip().to_canonical().is_loopback();
    let hello = tokio::select! {
        first = tokio::time::timeout(HELLO_TIMEOUT, first_message(&mut socket)) => read_hello(first.ok().flatten()),
        () = actor.revoked.cancelled() => Err(close::UNAUTHORIZED.because("the token was revoked or has expired")),
    };
    match hello {
        Ok(hello) => {
            let join = actor.join.clone();
            let mut connected = Connected { join, ..connected(&hello, acceptor.next_session(), address) };
            let session = connected.session.0;
            drop_labels(&mut connected, &acceptor.worker_labels);
            tracing::debug!(worker = %hello.name, session, peer = %address, "worker connected");
            let secrets = SessionSecrets::new(SecretSources {
                dir: acceptor.secrets.clone(),
                registries: acceptor.registries.clone(),
                is_private,
            });
            let records = acceptor.records.clone();
            let audit = JoinAudit::new(records, actor, address.ip().to_canonical(), connected.name.clone());
            session::serve(acceptor, socket, connected, secrets, audit, permit).await;
        }
        Err(close) => {
            tracing::info!(peer = %address, code = close.code, reason = close.reason, "worker refused");
            if close.code == close::UNSUPPORTED_VERSION.code {
                session::refuse_version(&mut socket, &close).await;
            }
            session::send_close(&mut socket, close).await;
        }
    }
}

/// The first message that is not a ping or pong.
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

/// Drops labels that workers may not claim. The worker is let in: an operator can set them for it.
fn drop_labels(connected: &mut Connected, allowed: &WorkerLabels) {
    let (kept, dropped): (Vec<_>, Vec<_>) =
        std::mem::take(&mut connected.labels).into_iter().partition(|(name, _)| allowed.allows(name));
    connected.labels = kept;
    if !dropped.is_empty() {
        let labels: Vec<&str> = dropped.iter().map(|(name, _)| name.as_str()).collect();
        tracing::warn!(
            worker = %connected.name,
            labels = labels.join(","),
            "worker claims labels that --worker-labels does not allow; they are ignored; set them with: longshore label"
        );
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
        resources: hello.resources.clone(),
        address: peer.to_string(),
        join: JoinPermit::default(),
    }
}
