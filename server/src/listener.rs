//! The accept loop: HTTP/1.1 on a TCP port, with limits that a stranger cannot get around.
//!
//! A connection that sends no head is closed after [`Limits::head_timeout`]; beyond [`Limits::connections`] of them only workers and
//! probes are served, so that a flood of clients never locks the workers out. Once half of them are in use, one address gets no more than
//! [`Limits::strangers`] on which no valid token has been shown; and none stays whose client takes nothing of an answer. A connection that
//! becomes a socket goes on counting until whoever made it so lets go of its [`Place`]. A shutdown lets requests finish for
//! [`Limits::farewell`].

mod heads;
mod parting;
mod patience;
mod port;
mod strangers;

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
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use heads::{Heads, Recorded};
use parting::{Parting, Partings};
use patience::Patient;
use strangers::{Stranger, Strangers};

/// Who is at the other end of a connection. Every request carries it as an extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the request says its length in two ways at once: somebody tries to be understood in two ways.
    pub ambiguous_length: bool,
    /// Whether the connection is one of the reserve: its requests are turned away unless a worker or a probe sends them.
    pub crowded: bool,
    /// The place of the connection. A handler that goes on with the connection after its answer holds on to it.
    pub place: Arc<Place>,
}

/// One of the places for connections; given back when nobody holds it any more.
#[derive(Debug)]
pub struct Place {
    house: Arc<House>,
    number: usize,
    /// Until a valid token is shown.
    stranger: Mutex<Option<Stranger>>,
}

/// What a listener may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are served anything. A worker's socket is one of them only until its worker is welcome.
    pub connections: usize,
    /// Connections beyond those, for workers and probes only.
    pub reserve: usize,
    /// Connections of one address on which no valid token has been shown yet, once half of [`Limits::connections`] are in use. Those of
    /// this machine are not counted; and it is for servers that have tokens, for without them nobody is a stranger.
    pub strangers: usize,
    /// How long the head of a request may take, also on a connection that is kept alive.
    pub head_timeout: Duration,
    /// How long a client may take nothing of what is being written to it.
    pub write_timeout: Duration,
    /// How long requests may go on after the shutdown began.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            reserve: 1_024,
            strangers: usize::MAX,
            head_timeout: Duration::from_secs(10),
            // Who pages through output reads a page meanwhile; and the system tells of room only when a third of all that it keeps for a
            // connection, some megabytes, has been taken: at 5 KB/s that is four minutes.
            write_timeout: Duration::from_secs(900),
            farewell: Duration::from_secs(5),
        }
    }
}

/// The port cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has it.
    #[error("cannot listen on {address}: in use{}", by(*.pid))]
    InUse {
        /// Where.
        address: SocketAddr,
        /// Who, as far as we may see it.
        pid: Option<u32>,
    },
    /// The system says no.
    #[error("cannot listen on {address}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// A port that is ours.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl Listener {
    /// Takes the port; with port 0 the system chooses a free one.
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
        Ok(Self { tcp, address, limits })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `leaving` is cancelled, then lets what is under way finish. Connections that became WebSockets are not waited for.
    pub async fn serve(self, router: Router, leaving: CancellationToken) {
        let connections = TaskTracker::new();
        let house = Arc::new(House {
            partings: Partings::new(connections.clone()),
            open: AtomicUsize::new(0),
            strangers: Strangers::new(self.limits.strangers),
            limits: self.limits,
            leaving: leaving.clone(),
            closing: CancellationToken::new(),
        });
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                () = leaving.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => house.admit(stream, peer, &router, &connections),
                Err(error) => pause_after(&error).await,
            }
        }
        drop(self.tcp);
        connections.close();
        if tokio::time::timeout(self.limits.farewell, connections.wait()).await.is_err() {
            house.partings.close();
            house.closing.cancel();
            connections.wait().await;
        }
    }
}

/// Lets the system ask, on every connection that is accepted here, whether the other end is still there: a stream of output may be silent
/// for hours. Routers on the way forget such a connection, and a client that is gone would hold its place for ever.
fn keep_alive(tcp: &TcpListener) -> io::Result<()> {
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, SILENT_FOR)?;
    sockopt::set_tcp_keepintvl(tcp, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(tcp, ASKED_TIMES)?;
    Ok(())
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by pid {pid}"))
}

/// What all connections share.
#[derive(Debug)]
struct House {
    partings: Partings,
    open: AtomicUsize,
    strangers: Arc<Strangers>,
    limits: Limits,
    leaving: CancellationToken,
    closing: CancellationToken,
}

impl House {
    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        router: &Router,
        connections: &TaskTracker,
    ) {
        let is_roomy = self.open.load(Ordering::Relaxed) < self.limits.connections / 2;
        let Ok(stranger) = self.strangers.admit(peer.ip(), is_roomy) else { return };
        let place = Place::take(self, stranger);
        if place.number > self.limits.connections + self.limits.reserve {
            tracing::warn!(%peer, open = place.number, "too many connections: one is turned away");
            return;
        }
        // Without it small answers wait for the acknowledgement of earlier ones.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "a connection was gone before it began");
            return;
        }
        connections.spawn(serve(stream, peer, router.clone(), Arc::new(place)));
    }
}

impl Place {
    fn take(house: &Arc<House>, stranger: Option<Stranger>) -> Self {
        let number = house.open.fetch_add(1, Ordering::Relaxed) + 1;
        Self { house: Arc::clone(house), number, stranger: Mutex::new(stranger) }
    }

    /// A valid token has been shown on it: it no longer counts among the strangers of its address.
    pub fn note_token(&self) {
        *self.stranger.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.house.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection until it ends, is upgraded, or the server leaves.
async fn serve(stream: TcpStream, address: SocketAddr, router: Router, place: Arc<Place>) {
    let house = &place.house;
    let limits = house.limits;
    let crowded = place.number > limits.connections;
    let held = Arc::clone(&place);
    let heads = Heads::default();
    let recorded = heads.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let ambiguous_length = recorded.turn_to(request.headers());
        let place = Arc::clone(&held);
        request.extensions_mut().insert(Peer { address, ambiguous_length, crowded, place });
        Service::call(&mut router.clone(), request)
    });
    let patient = Patient::new(Parting::new(stream, house.partings.clone()), limits.write_timeout);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(Recorded::new(patient, heads)), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = house.leaving.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = house.closing.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        // Clients break off all the time.
        tracing::debug!(peer = %address, %error, "a connection ended early");
    }
}

/// A connection that was gone before we looked is nobody's fault; without file descriptors we wait for some to be given back.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::error!(%error, "cannot accept connections");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Less than what routers commonly remember a silent connection for (from some minutes on).
const SILENT_FOR: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// Without any answer the connection is given up: two minutes after the last sign of life.
const ASKED_TIMES: u32 = 4;

/// What hyper reads of one head. More than `front` lets pass, so that it answers with a problem document: hyper's own answer has none.
const HEADERS_MAX: usize = 128;

/// What hyper may hold of one connection. Above the limits of `front`, so that those answer with a problem document.
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
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), SILENT_FOR);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), ASKED_EVERY);
    }
}
