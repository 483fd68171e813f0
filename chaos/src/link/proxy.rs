//! A proxy of our own, which needs no privileges. It behaves as a network does towards TCP: what cannot pass now is not lost but late, and whoever
//! closes a socket behind a silent link is not heard to do so until the link is well again.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{self, Receiver, Sender};

use super::{Way, Weather};

/// A way through this process.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: Sender<Weather>,
}

impl Proxy {
    /// Opens a way to the server on this port. Must be called on a runtime, which carries it.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, outlook) = watch::channel(Weather::Clear);
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                tokio::spawn(carry(worker, port, outlook.clone()));
            }
        });
        Self { address, weather }
    }

    /// Where the worker finds its server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what passes, at once.
    pub fn turn(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

/// Carries one connection to its end, or until the link breaks.
async fn carry(worker: TcpStream, port: u16, mut outlook: Receiver<Weather>) {
    if *outlook.borrow() == Weather::Broken {
        return;
    }
    // A dial into silence is answered when it is over.
    let _ = outlook.wait_for(|now| *now != Weather::Silent).await;
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let _ = (worker.set_nodelay(true), server.set_nodelay(true));
    let (from_worker, to_worker) = worker.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pump(from_worker, to_server, Way::Up, outlook.clone());
    let down = pump(from_server, to_worker, Way::Down, outlook.clone());
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        _ = outlook.wait_for(|now| *now == Weather::Broken) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, mut outlook: Receiver<Weather>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let Ok(weather) = outlook.wait_for(|now| now.passes(way)).await.map(|now| *now) else { return };
        if let Weather::Slow(delay) = weather {
            tokio::time::sleep(delay).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            // Its end is the other's to notice.
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
    use crate::stage::within;

    /// A server that answers every byte with the same one.
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

    async fn answer(socket: &mut TcpStream, patience: Duration) -> Option<u8> {
        tokio::time::timeout(patience, socket.read_u8()).await.ok()?.ok()
    }

    #[tokio::test]
    async fn what_does_not_pass_is_late_and_not_lost() {
        let link = Proxy::to(echo().await).await;
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(1));
        for trouble in [Weather::Silent, Weather::DeafServer, Weather::DeafWorker] {
            link.turn(trouble);
            socket.write_u8(2).await.unwrap();
            assert_eq!(answer(&mut socket, SHORT).await, None, "{trouble:?}");
            link.turn(Weather::Clear);
            assert_eq!(answer(&mut socket, LONG).await, Some(2), "{trouble:?}");
        }
    }

    #[tokio::test]
    async fn a_broken_link_ends_connections_and_takes_none() {
        let link = Proxy::to(echo().await).await;
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(1));
        link.turn(Weather::Broken);
        assert!(within(LONG, async || socket.read_u8().await.err()).await.is_some());
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        assert!(within(LONG, async || socket.read_u8().await.err()).await.is_some());
        link.turn(Weather::Clear);
        let mut socket = TcpStream::connect(link.address()).await.unwrap();
        socket.write_u8(3).await.unwrap();
        assert_eq!(answer(&mut socket, LONG).await, Some(3));
    }

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(100);
}
