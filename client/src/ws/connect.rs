//! Dialling: TCP, the upgrade with token and subprotocol, and a hint for each way in which that fails.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use protocol::SUBPROTOCOL;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::{StatusCode, Uri};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::Address;
use super::token::{self, TokenError};

/// Knows whom to call and with which token.
#[derive(Clone, Debug)]
pub struct Dialer {
    address: Address,
    token_file: Option<PathBuf>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The token cannot be had.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No TCP connection.
    #[error("cannot reach {address}")]
    Tcp {
        /// Whom.
        address: Address,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Nobody answered in time.
    #[error("{0} did not answer in time")]
    Silent(Address),
    /// The server said no.
    #[error("{address} answered {status}: {}", hint(*status))]
    Status {
        /// Who.
        address: Address,
        /// What.
        status: StatusCode,
    },
    /// It is not a Longshore server.
    #[error("{0} does not speak {SUBPROTOCOL}: is it a Longshore server of this version?")]
    Subprotocol(Address),
    /// It took the call, and hung up before it said anything that could be read.
    #[error(
        "{0} closed the connection before it had answered: it may be starting, stopping or full; we try again"
    )]
    Closed(Address),
    /// It speaks HTTP, and not this.
    #[error("{address} answers in HTTP, but not as a WebSocket server: is it a Longshore server?")]
    NotWebSocket {
        /// Who.
        address: Address,
        /// What was wrong.
        #[source]
        cause: ProtocolError,
    },
    /// The answer was no HTTP at all.
    #[error("{address} did not answer in HTTP: is it another service, or does it want TLS?")]
    NotHttp {
        /// Who.
        address: Address,
        /// What was wrong.
        #[source]
        cause: Box<tungstenite::Error>,
    },
}

impl Dialer {
    /// For this address. The token is read from its file at each dial, so that it can be changed.
    #[must_use]
    pub const fn new(address: Address, token_file: Option<PathBuf>) -> Self {
        Self { address, token_file }
    }

    /// The same, for another address.
    #[must_use]
    pub fn elsewhere(&self, address: Address) -> Self {
        Self { address, token_file: self.token_file.clone() }
    }

    /// Whom it calls.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Whether there is a token now, if there is to be one: what is wrong with it is better told at once than at each dial.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self) -> Result<(), TokenError> {
        self.token_file.as_deref().map_or(Ok(()), |file| token::read(file).map(drop))
    }

    /// Opens a connection.
    pub(super) async fn dial(&self) -> Result<WebSocketStream<TcpStream>, ConnectError> {
        let silent = |_| ConnectError::Silent(self.address.clone());
        let request = self.request()?;
        let tcp = TcpStream::connect((self.address.host(), self.address.port()));
        let tcp =
            timeout(DIAL_PATIENCE, tcp).await.map_err(silent)?.map_err(|cause| self.unreachable(cause))?;
        tcp.set_nodelay(true).map_err(|cause| self.unreachable(cause))?;
        let upgrade = client_async_with_config(request, tcp, Some(limits()));
        let (socket, _) =
            timeout(DIAL_PATIENCE, upgrade).await.map_err(silent)?.map_err(|cause| self.refused(cause))?;
        Ok(socket)
    }

    fn request(&self) -> Result<ClientRequestBuilder, ConnectError> {
        let url: Uri =
            self.address.connect_url().parse().map_err(|cause: tungstenite::http::uri::InvalidUri| {
                self.unreachable(io::Error::new(io::ErrorKind::InvalidInput, cause))
            })?;
        let mut request = ClientRequestBuilder::new(url).with_sub_protocol(SUBPROTOCOL);
        if let Some(file) = &self.token_file {
            let token = token::read(file)?;
            request = request.with_header("authorization", format!("Bearer {token}"));
        }
        Ok(request)
    }

    fn unreachable(&self, cause: io::Error) -> ConnectError {
        ConnectError::Tcp { address: self.address.clone(), cause }
    }

    fn refused(&self, cause: tungstenite::Error) -> ConnectError {
        let address = self.address.clone();
        match cause {
            tungstenite::Error::Http(response) => ConnectError::Status { address, status: response.status() },
            tungstenite::Error::Io(cause) if has_hung_up(cause.kind()) => ConnectError::Closed(address),
            tungstenite::Error::Io(cause) => ConnectError::Tcp { address, cause },
            tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete) => ConnectError::Closed(address),
            tungstenite::Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)) => {
                ConnectError::Subprotocol(address)
            }
            tungstenite::Error::Protocol(cause) if !matches!(cause, ProtocolError::HttparseError(_)) => {
                ConnectError::NotWebSocket { address, cause }
            }
            cause => ConnectError::NotHttp { address, cause: Box::new(cause) },
        }
    }
}

/// Whether a connection that was there is there no more.
const fn has_hung_up(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// What to look at for each refusal of the upgrade.
fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => {
            "the token is missing or wrong: --token-file or LONGSHORE_WORKER_TOKEN_FILE must name a file with the server's worker token"
        }
        403 => {
            "most likely this is the token for the API: --token-file or LONGSHORE_WORKER_TOKEN_FILE must name a file with the server's worker token"
        }
        404 => {
            "there is no Longshore server at this path; a base path belongs into the address (host:port/path)"
        }
        421 => "the server does not go by this name; give its own name in the address",
        426 => "something in between does not pass WebSockets on",
        300..=399 => "it sends us elsewhere; give the address where it ends up",
        429 | 503 => "it is busy or not ready; we try again",
        _ => "this is not what a Longshore server says here",
    }
}

/// DEPENDENCIES.md 5.1: the library's own are 128 KiB per connection, and no limit for writing.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(8 << 10)
        .write_buffer_size(16 << 10)
        .max_write_buffer_size(4 << 20)
        .max_message_size(Some(1 << 20))
        .max_frame_size(Some(1 << 20))
}

const DIAL_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What is said of a peer that answers any request like this, and hangs up.
    async fn said_of(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let peer = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.expect("a call");
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(answer).await;
        });
        let dialer = Dialer::new(Address::parse(&address).expect("an address"), None);
        let error = dialer.dial().await.expect_err("it is no server").to_string();
        peer.await.expect("no panic");
        error
    }

    #[tokio::test]
    async fn only_who_does_not_speak_http_is_taken_for_another_service() {
        let hung_up = said_of(b"").await;
        assert!(hung_up.contains("closed the connection before"), "{hung_up}");
        let half = said_of(b"HTTP/1.1 101 Swit").await;
        assert!(half.contains("closed the connection before"), "{half}");
        let plain = said_of(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await;
        assert!(plain.contains("not as a WebSocket server"), "{plain}");
        let alert = said_of(b"\x15\x03\x01\x00\x02\x02\x46").await;
        assert!(alert.contains("does it want TLS?"), "{alert}");
        let greeting = said_of(b"220 mail.example ESMTP\r\n").await;
        assert!(greeting.contains("is it another service"), "{greeting}");
    }
}
