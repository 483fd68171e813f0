//! `GET /api/workers/connect`: upgrade, first frame, identity. The middleware of the router has checked access before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::StreamExt;
use protocol::close::{self, Close};
use protocol::report::Hello;
use protocol::wire::{self, FRAME_BYTES_MAX};
use protocol::{Report, SessionId};
use scheduler::input::{Connected, JoinPermit};
use sha2::{Digest, Sha256};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WireError, Message};

use super::acceptor::WorkerAcceptor;
use super::join_audit::JoinAudit;
use super::secrets::{SecretSources, SessionSecrets};
use super::upgrade::{Socket, Upgrade};
use super::{fragments, session};
use crate::auth::actor::Actor;
use crate::config::WorkerLabels;
use crate::listener::Peer;

/// A worker must send Hello within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// tungstenite allocates its read buffer per connection at once: small, because of a thousand idle workers.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Bytes after which buffered frames are written to the socket.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Bytes that may wait for a worker that does not read; above it the session is closed.
const WRITE_BUFFER_BYTES_MAX: usize = 4 << 20;

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
        () = actor.revoked.cancelled() => Err(close::UNAUTHORIZED.with_reason("the token was revoked or has expired")),
    };
    match hello {
        Ok(hello) => {
            let join = actor.join.clone();
            let mut connected = Connected { join, ..connected(&hello, acceptor.next_session(), address) };
            let session = connected.session.0;
            drop_labels(&mut connected, &acceptor.worker_labels);
            tracing::debug!(worker = %hello.name, session, peer = %address, "worker connected");
            let sources = SecretSources {
                dir: acceptor.secrets.clone(),
                registries: acceptor.registries.clone(),
                is_private,
            };
            let secrets = SessionSecrets::new(sources, acceptor.missing_secrets.clone());
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
            Ok(_) => Err(close::HELLO_EXPECTED.with_reason("the first message was another")),
            Err(error) => Err(error.close()),
        },
        Some(Ok(Message::Text(_))) => Err(close::TEXT_FRAME.plain()),
        Some(Ok(_)) => Err(close::HELLO_EXPECTED.with_reason("the first message was not binary")),
        Some(Err(error)) => Err(fragments::broken(&error)
            .unwrap_or_else(|| close::HELLO_EXPECTED.with_reason("the socket broke"))),
        None => Err(close::HELLO_EXPECTED.with_reason("none came in time")),
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
