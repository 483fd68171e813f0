//! A TCP proxy that needs no privileges. As in a network, data that cannot pass now is delayed and not lost, and a socket closed after a
//! silent link is seen as closed only when the link works again. Other than in a network, a connection is accepted in any state, and a reset
//! reaches the other side as an end.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{self, Receiver, Sender};

use super::{Direction, LinkState};

/// A proxy between one worker and the server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Sender<LinkState>,
}

impl Proxy {
    /// Starts a proxy to the server on this port, on the current runtime.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, states) = watch::channel(LinkState::Clear);
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                tokio::spawn(forward_connection(worker, port, states.clone()));
            }
        });
        Self { address, state }
    }

    /// The address that the worker connects to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the state at once.
    pub fn set_state(&self, state: LinkState) {
        self.state.send_replace(state);
    }
}

/// Forwards one connection until it ends or the link breaks.
async fn forward_connection(worker: TcpStream, port: u16, mut states: Receiver<LinkState>) {
    if *states.borrow() == LinkState::Broken {
        return;
    }
    // A new connection on a silent link is forwarded when the silence is over.
    let _ = states.wait_for(|now| *now != LinkState::Silent).await;
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let _ = (worker.set_nodelay(true), server.set_nodelay(true));
    let (from_worker, to_worker) = worker.into_split();
    let (from_server, to_server) = server.into_split();
    let up = forward_bytes(from_worker, to_server, Direction::Up, states.clone());
    let down = forward_bytes(from_server, to_worker, Direction::Down, states.clone());
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = states.wait_for(|now| *now == LinkState::Broken) => {}
    }
}

async fn forward_bytes(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut states: Receiver<LinkState>,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let Ok(state) = states.wait_for(|now| now.passes(direction)).await.map(|now| *now) else { return };
        if let LinkState::Slow(delay) = state {
            tokio::time::sleep(delay).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            // The other direction ends by itself.
            let _ = to.shutdown().await;
            return;
        }
    }
}

const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use testkit::wait_at_most;

    /// Starts a server that echoes every byte.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = socket.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        port
    }

    async fn answer(socket: &mut TcpStream, limit: Duration) -> Option<u8> {
        tokio::time::timeout(limit, socket.read_u8()).await.ok()?.ok()
    }

    #[tokio::test]
    async fn data_on_a_silent_link_is_delayed_and_not_lost() {
        let link = Proxy::start(echo().await).await;
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(1));
        for state in [LinkState::Silent, LinkState::DeafServer, LinkState::DeafWorker] {
            link.set_state(state);
            socket.write_u8(2).await.unwrap();
            assert_eq!(answer(&mut socket, SHORT).await, None, "{state:?}");
            link.set_state(LinkState::Clear);
            assert_eq!(answer(&mut socket, LONG).await, Some(2), "{state:?}");
        }
    }

    #[tokio::test]
    async fn broken_link_resets_connections_and_accepts_none() {
        let link = Proxy::start(echo().await).await;
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(1));
        link.set_state(LinkState::Broken);
        assert!(wait_at_most(LONG, async || socket.read_u8().await.err()).await.is_some());
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        assert!(wait_at_most(LONG, async || socket.read_u8().await.err()).await.is_some());
        link.set_state(LinkState::Clear);
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(3).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(3));
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(100);
}
