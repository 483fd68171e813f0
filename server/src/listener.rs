//! The accept loop: HTTP/1.1 on a TCP port, plain or with TLS, with limits that hold before authentication.
//!
//! A connection that sends no request head is closed after [`Limits::head_timeout`]. Above [`Limits::connections`] only workers and health
//! checks are served, so that a flood of clients never locks the workers out. Once half of them are in use, one address gets no more than
//! [`Limits::unauthenticated`] connections without a valid token. A client that reads nothing of an answer is disconnected after
//! [`Limits::write_timeout`], without a valid token after [`Limits::unauthenticated_write_timeout`]. A connection that becomes a WebSocket counts until its [`ConnectionPermit`] is dropped. At shutdown requests
//! get [`Limits::drain_timeout`] to finish.

pub mod client_certificates;
mod expiry;
mod heads;
mod lingering;
mod port;
pub mod tls;
pub mod tls_files;
pub mod tls_status;
mod unauthenticated;
mod write_timeout;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::Service;

use heads::{HeadBudget, HeadCapturingStream, SharedHeadBuffer};
use lingering::{LingeringCloses, LingeringStream};
use tls::{CurrentConfig, Tls};
use unauthenticated::{UnauthenticatedConnection, UnauthenticatedConnections};
use write_timeout::{WriteLimit, WriteTimeout};

/// The remote end of a connection. Every request carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The remote address.
    pub address: SocketAddr,
    /// True if the connection uses TLS.
    pub is_tls: bool,
    /// True if the request states its length in two ways at once (request smuggling).
    pub ambiguous_length: bool,
    /// True for a reserve connection: only requests of workers and health checks are served on it.
    pub is_reserve: bool,
    /// The permit of the connection. A handler that keeps the connection after its answer keeps the permit.
    pub permit: Arc<ConnectionPermit>,
}

/// One of the limited connections; released with its last holder.
#[derive(Debug)]
pub struct ConnectionPermit {
    state: Arc<ListenerState>,
    number: usize,
    /// Present until a valid token is shown.
    unauthenticated: Mutex<Option<UnauthenticatedConnection>>,
    write_limit: WriteLimit,
}

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections for all clients. A worker's socket counts only until its worker is welcomed.
    pub connections: usize,
    /// Further connections for workers and health checks.
    pub reserve: usize,
    /// Connections of one address without a valid token, once half of [`Limits::connections`] are in use. Connections from this machine are
    /// not counted. Servers without tokens set no limit.
    pub unauthenticated: usize,
    /// Bytes of all request heads that have not ended, of all connections together. Beyond it, connections with a head of more than 2 KiB are
    /// closed. The HTTP library holds as much again.
    pub head_bytes: usize,
    /// The time limit of a request head, also on a kept-alive connection.
    pub head_timeout: Duration,
    /// The longest time in which a client reads nothing of an answer.
    pub write_timeout: Duration,
    /// The same, before the connection has shown a valid token. Servers without tokens have [`Limits::write_timeout`] only.
    pub unauthenticated_write_timeout: Duration,
    /// The time for requests under way after a shutdown began.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            reserve: 1_024,
            unauthenticated: usize::MAX,
            head_bytes: 32 << 20,
            head_timeout: Duration::from_secs(10),
            // A person who pages through output reads slowly, and the kernel reports room only after a third of its buffer of some
            // megabytes was taken: at 5 KB/s after four minutes.
            write_timeout: Duration::from_secs(900),
            // Without a token there are only small answers.
            unauthenticated_write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// The port is not available.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens on it.
    #[error("cannot listen on {address}: in use{}", pid_suffix(*.pid))]
    InUse {
        /// The address that was asked for.
        address: SocketAddr,
        /// The process id, if `/proc` shows it.
        pid: Option<u32>,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}")]
    Refused {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
}

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    limits: Limits,
    tls: Option<Tls>,
}

impl Listener {
    /// Binds the port; port 0 lets the system choose one.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn bind(address: SocketAddr, limits: Limits) -> Result<Self, ListenError> {
        let refused = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AddrInUse => {
                ListenError::InUse { address, pid: port::listening_pid(address.port()) }
            }
            _ => ListenError::Refused { address, cause },
        };
        let tcp = TcpListener::bind(address).await.map_err(refused)?;
        keep_alive(&tcp).map_err(refused)?;
        let address = tcp.local_addr().map_err(refused)?;
        Ok(Self { tcp, address, limits, tls: None })
    }

    /// Speaks TLS with this certificate. It is read again when its files change.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The URL of the server as a client on this machine writes it.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is cancelled, then lets requests finish. Connections that became WebSockets are not waited for.
    pub async fn serve(self, router: Router, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        let state = Arc::new(ListenerState {
            lingering_closes: LingeringCloses::new(connections.clone()),
            open: AtomicUsize::new(0),
            unauthenticated: UnauthenticatedConnections::new(self.limits.unauthenticated),
            head_budget: Arc::new(HeadBudget::within(self.limits.head_bytes)),
            limits: self.limits,
            tls: self.tls.as_ref().map(Tls::config),
            shutdown: shutdown.clone(),
            closing: CancellationToken::new(),
        });
        let _renewing = self.tls.map(|tls| AbortOnDropHandle::new(tokio::spawn(tls.renew())));
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => state.admit(stream, peer, &router, &connections),
                Err(error) => pause_after(&error).await,
            }
        }
        drop(self.tcp);
        connections.close();
        if tokio::time::timeout(self.limits.drain_timeout, connections.wait()).await.is_err() {
            state.lingering_closes.close();
            state.closing.cancel();
            connections.wait().await;
        }
    }
}

/// Enables TCP keepalive on every accepted connection: a stream of output may be silent for hours. Routers forget such a connection, and a
/// client that is gone would hold its permit for ever.
fn keep_alive(tcp: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_PROBES)?;
    Ok(())
}

fn pid_suffix(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by pid {pid}"))
}

/// The state that all connections share.
#[derive(Debug)]
struct ListenerState {
    lingering_closes: LingeringCloses,
    open: AtomicUsize,
    unauthenticated: Arc<UnauthenticatedConnections>,
    head_budget: Arc<HeadBudget>,
    limits: Limits,
    tls: Option<CurrentConfig>,
    shutdown: CancellationToken,
    closing: CancellationToken,
}

impl ListenerState {
    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        router: &Router,
        connections: &TaskTracker,
    ) {
        let has_room = self.open.load(Ordering::Relaxed) < self.limits.connections / 2;
        let Ok(unauthenticated) = self.unauthenticated.admit(peer.ip(), has_room) else { return };
        let permit = ConnectionPermit::take(self, unauthenticated);
        if permit.number > self.limits.connections + self.limits.reserve {
            tracing::warn!(%peer, open = permit.number, "connection refused: the listener is full");
            return;
        }
        // Without it small answers wait for the acknowledgement of earlier ones.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection closed before it was served");
            return;
        }
        connections.spawn(serve(stream, peer, router.clone(), Arc::new(permit)));
    }
}

impl ConnectionPermit {
    fn take(state: &Arc<ListenerState>, unauthenticated: Option<UnauthenticatedConnection>) -> Self {
        let number = state.open.fetch_add(1, Ordering::Relaxed) + 1;
        let write_limit = WriteLimit::within(&state.limits);
        Self { state: Arc::clone(state), number, unauthenticated: Mutex::new(unauthenticated), write_limit }
    }

    /// Removes the connection from the unauthenticated ones of its address after a valid token was shown, and lets it read more slowly.
    pub fn mark_authenticated(&self) {
        *self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.write_limit.mark_authenticated();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection until it ends, is upgraded, or the server shuts down.
async fn serve(stream: TcpStream, address: SocketAddr, router: Router, permit: Arc<ConnectionPermit>) {
    let state = Arc::clone(&permit.state);
    let Some(config) = &state.tls else {
        let stream = LingeringStream::new(stream, state.lingering_closes.clone());
        return serve_http(stream, address, router, permit).await;
    };
    let handshake = tls::accept(config, stream, state.limits.head_timeout, &state.lingering_closes);
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        () = state.closing.cancelled() => return,
    };
    match accepted {
        Ok(stream) => serve_http(stream, address, router, permit).await,
        // Clients without the certificate, port scanners: not the server's fault.
        Err(error) => tracing::debug!(peer = %address, %error, "connection ended in the TLS handshake"),
    }
}

/// Serves HTTP on a connection that is ready for it.
async fn serve_http<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    address: SocketAddr,
    router: Router,
    permit: Arc<ConnectionPermit>,
) {
    let state = &permit.state;
    let limits = state.limits;
    let is_tls = state.tls.is_some();
    let is_reserve = permit.number > limits.connections;
    let held = Arc::clone(&permit);
    let heads = SharedHeadBuffer::within(Arc::clone(&state.head_budget));
    let captured = heads.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let ambiguous_length = captured.advance_to(request.headers());
        let permit = Arc::clone(&held);
        request.extensions_mut().insert(Peer { address, is_tls, ambiguous_length, is_reserve, permit });
        Service::call(&mut router.clone(), request)
    });
    let stream_with_timeout = WriteTimeout::new(stream, permit.write_limit.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(
            TokioIo::new(HeadCapturingStream::new(stream_with_timeout, heads, address)),
            service,
        )
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = state.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = state.closing.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        // Clients disconnect all the time.
        tracing::debug!(peer = %address, %error, "connection ended early");
    }
}

/// Ignores connections that were gone before the accept; without file descriptors, waits until some are free.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::error!(%error, "cannot accept connections; trying again");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Shorter than the idle timeout of common routers (some minutes).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A peer without any answer is given up two minutes after its last packet.
const KEEPALIVE_PROBES: u32 = 4;

/// Headers that hyper reads of one head. More than `front` allows, so that `front` answers with a problem document.
const HEADERS_MAX: usize = 128;

/// Bytes that hyper buffers of one connection. More than `front` allows, so that `front` answers with a problem document.
const BUFFER_BYTES_MAX: usize = 64 << 10;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_accepted_is_asked_whether_it_lives() {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).await.unwrap();
        let _client = TcpStream::connect(listener.address()).await.unwrap();
        let (accepted, _) = listener.tcp.accept().await.unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), KEEPALIVE_INTERVAL);
    }
}
