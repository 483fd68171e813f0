//! Opens connections: TCP, the upgrade with token and subprotocol, and a hint for each way in which that fails.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use protocol::{SUBPROTOCOL, WORKER_SCHEME, WorkerId};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::header::{CONTENT_TYPE, HeaderValue};
use tokio_tungstenite::tungstenite::http::{StatusCode, Uri};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::either::Either;

use super::tcp::{self, TcpError};
use super::token::{self, TokenError};
use super::{Address, code_of_problem, sentence_of_answer};
use crate::tls;

/// Address and token file of a server, and the certificates that prove it.
#[derive(Clone)]
pub struct Connector {
    address: Address,
    token_file: Option<PathBuf>,
    tls: Option<Arc<ClientConfig>>,
    /// The proof of the worker that has joined. Shared by all connectors of a process.
    proof: Arc<Mutex<Option<String>>>,
}

/// A connection, with TLS or without.
pub(super) type Stream = Either<TlsStream<TcpStream>, TcpStream>;

/// A connection cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The TCP connection failed.
    #[error("cannot reach {address}")]
    Tcp {
        /// Address of the server.
        address: Address,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The TLS handshake failed.
    #[error("{address}: {}", tls::advice(cause).unwrap_or("the TLS handshake failed"))]
    Tls {
        /// Address of the server.
        address: Address,
        /// The error of the handshake.
        #[source]
        cause: io::Error,
    },
    /// The server did not answer within the time limit.
    #[error("{0} did not answer in time")]
    Silent(Address),
    /// The server refused the upgrade.
    #[error("{address} answered {status}: {}", explain(*status, sentence.as_deref()))]
    Status {
        /// Address of the server.
        address: Address,
        /// HTTP status of its answer.
        status: StatusCode,
        /// The text of a short plain-text answer.
        sentence: Option<String>,
    },
    /// The server refuses this address before it looks at tokens.
    #[error(
        "{0} has locked out the address of this machine: too many requests from it had different wrong tokens. It refuses valid tokens, too, until these stop; we try again. \"longshore audit\" on the server shows the lock-out"
    )]
    LockedOut(Address),
    /// The server speaks another protocol.
    #[error("{0} does not speak {SUBPROTOCOL}: is it a Longshore server of this version?")]
    Subprotocol(Address),
    /// The server closed the connection before its answer was complete.
    #[error(
        "{0} closed the connection before it had answered: it may be starting, stopping or full; we try again"
    )]
    Closed(Address),
    /// The server speaks HTTP and not WebSocket.
    #[error("{address} answers in HTTP, but not as a WebSocket server: is it a Longshore server?")]
    NotWebSocket {
        /// Address of the server.
        address: Address,
        /// The violated rule.
        #[source]
        cause: ProtocolError,
    },
    /// The answer is not HTTP.
    #[error("{address} did not answer in HTTP: is it another service, or does it want TLS (https://)?")]
    NotHttp {
        /// Address of the server.
        address: Address,
        /// The error of the parser.
        #[source]
        cause: Box<tungstenite::Error>,
    },
}

impl Connector {
    /// A connector for this address. The token is read from its file at each connection, so it can be replaced.
    #[must_use]
    pub fn new(address: Address, token_file: Option<PathBuf>) -> Self {
        Self { address, token_file, tls: None, proof: Arc::default() }
    }

    /// Shows the secret of this worker at each connection from now on, beside the token; `None`: only the token.
    pub(crate) fn set_proof(&self, of: Option<(WorkerId, [u8; 32])>) {
        let proof = of.map(|(worker, secret)| {
            format!("{WORKER_SCHEME} id=\"{worker}\", secret=\"{}\"", BASE64URL_NOPAD.encode(&secret))
        });
        *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = proof;
    }

    /// Uses these settings for TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientConfig) -> Self {
        self.tls = Some(Arc::new(tls));
        self
    }

    /// The same token file with another address. A connector with TLS never goes on without it, because it would show its token to the
    /// network.
    #[must_use]
    pub fn with_address(&self, address: Address) -> Self {
        let address = if self.tls.is_some() { address.with_tls() } else { address };
        Self {
            address,
            token_file: self.token_file.clone(),
            tls: self.tls.clone(),
            proof: self.proof.clone(),
        }
    }

    /// The address that it connects to.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Checks that the token can be read, so that a fault is reported at the start and not at each connection.
    ///
    /// # Errors
    /// The token cannot be read.
    pub fn check(&self) -> Result<(), TokenError> {
        self.token_file.as_deref().map_or(Ok(()), |file| token::read(file).map(drop))
    }

    /// Opens a connection.
    pub(super) async fn dial(&self) -> Result<WebSocketStream<Stream>, ConnectError> {
        let silent = |_| ConnectError::Silent(self.address.clone());
        let request = self.request()?;
        let tcp = tcp::connect(self.address.host(), self.address.port(), DIAL_TIMEOUT);
        let tcp = tcp.await.map_err(|error| match error {
            TcpError::Silent => ConnectError::Silent(self.address.clone()),
            TcpError::Failed(cause) => self.tcp_error(cause),
        })?;
        tcp.set_nodelay(true).map_err(|cause| self.tcp_error(cause))?;
        let stream = timeout(DIAL_TIMEOUT, self.secure(tcp)).await.map_err(silent)??;
        let upgrade = client_async_with_config(request, stream, Some(limits()));
        let (socket, _) = timeout(DIAL_TIMEOUT, upgrade)
            .await
            .map_err(silent)?
            .map_err(|cause| self.upgrade_error(cause))?;
        Ok(socket)
    }

    /// Does the TLS handshake if the address asks for it.
    async fn secure(&self, tcp: TcpStream) -> Result<Stream, ConnectError> {
        if !self.address.is_tls() {
            return Ok(Either::Right(tcp));
        }
        let failed = |cause| ConnectError::Tls { address: self.address.clone(), cause };
        let invalid = |cause: &str| failed(io::Error::new(io::ErrorKind::InvalidInput, cause));
        let settings = self.tls.clone().ok_or_else(|| invalid("this worker was started without TLS"))?;
        let name = ServerName::try_from(self.address.host().to_owned())
            .map_err(|_| invalid("the address names no host that a certificate can be for"))?;
        TlsConnector::from(settings).connect(name, tcp).await.map(Either::Left).map_err(failed)
    }

    fn request(&self) -> Result<ClientRequestBuilder, ConnectError> {
        let url: Uri =
            self.address.connect_url().parse().map_err(|cause: tungstenite::http::uri::InvalidUri| {
                self.tcp_error(io::Error::new(io::ErrorKind::InvalidInput, cause))
            })?;
        let mut request = ClientRequestBuilder::new(url).with_sub_protocol(SUBPROTOCOL);
        if let Some(value) = self.authorization()? {
            request = request.with_header("authorization", value);
        }
        Ok(request)
    }

    /// A worker that has joined shows its own secret, and the token for a server that does not know it any more. It does not need the token:
    /// the file may be gone.
    fn authorization(&self) -> Result<Option<String>, TokenError> {
        let token = self.token_file.as_deref().map(token::read);
        let proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(match (proof, token.transpose()) {
            (Some(proof), Ok(Some(token))) => {
                Some(format!("{proof}, token=\"{}\"", BASE64URL_NOPAD.encode(token.as_bytes())))
            }
            (Some(proof), Ok(None) | Err(_)) => Some(proof),
            (None, token) => token?.map(|token| format!("Bearer {token}")),
        })
    }

    fn tcp_error(&self, cause: io::Error) -> ConnectError {
        ConnectError::Tcp { address: self.address.clone(), cause }
    }

    fn upgrade_error(&self, cause: tungstenite::Error) -> ConnectError {
        let address = self.address.clone();
        match cause {
            tungstenite::Error::Http(response) => {
                let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
                let body = response.body().as_deref().unwrap_or_default();
                if code_of_problem(kind, body).as_deref() == Some(LOCKED_OUT) {
                    return ConnectError::LockedOut(address);
                }
                let sentence = sentence_of_answer(kind, body);
                ConnectError::Status { address, status: response.status(), sentence }
            }
            tungstenite::Error::Io(cause) if is_disconnect(cause.kind()) => ConnectError::Closed(address),
            // With TLS 1.3 the server refuses the certificate of a client after the handshake.
            tungstenite::Error::Io(cause) if tls::advice(&cause).is_some() => {
                ConnectError::Tls { address, cause }
            }
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

/// `true` for errors of a connection that was established before.
const fn is_disconnect(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// Advice and the server's own sentence about a refused upgrade.
fn explain(status: StatusCode, sentence: Option<&str>) -> String {
    match (hint(status), sentence) {
        (Some(hint), Some(sentence)) => format!("{hint} (the answer says: {sentence})"),
        (None, Some(sentence)) => sentence.to_owned(),
        (hint, None) => hint.unwrap_or("this is not what a Longshore server says here").to_owned(),
    }
}

/// Advice for a status of a refused upgrade.
fn hint(status: StatusCode) -> Option<&'static str> {
    Some(match status.as_u16() {
        401 => {
            "the server knows neither this worker nor its token, or has revoked it: --token-file or LONGSHORE_WORKER_TOKEN_FILE must name a file with a valid join token, and a worker that had joined before also needs --rejoin"
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
        _ => return None,
    })
}

/// The defaults of the library are 128 KiB per connection and no limit for writing.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(8 << 10)
        .write_buffer_size(16 << 10)
        .max_write_buffer_size(4 << 20)
        .max_message_size(Some(1 << 20))
        .max_frame_size(Some(1 << 20))
}

/// The code of the problem document for a locked-out address.
const LOCKED_OUT: &str = "too_many_failures";

/// Time for each step of a connection: TCP, TLS, the upgrade.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The error message about a peer that sends this answer and closes.
    async fn said_of(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let peer = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.expect("a call");
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(answer).await;
        });
        let connector = Connector::new(Address::parse(&address).expect("an address"), None);
        let error = connector.dial().await.expect_err("it is no server").to_string();
        peer.await.expect("no panic");
        error
    }

    #[tokio::test]
    async fn a_lock_out_is_told_from_a_server_that_is_busy() {
        let locked = said_of(b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncontent-length: 28\r\n\r\n{\"code\":\"too_many_failures\"}").await;
        assert!(locked.contains("locked out the address of this machine"), "{locked}");
        let busy = said_of(b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncontent-length: 15\r\n\r\n{\"code\":\"busy\"}").await;
        assert!(busy.ends_with("it is busy or not ready; we try again"), "{busy}");
    }

    #[tokio::test]
    async fn only_a_peer_without_http_counts_as_another_service() {
        let hung_up = said_of(b"").await;
        assert!(hung_up.contains("closed the connection before"), "{hung_up}");
        let half = said_of(b"HTTP/1.1 101 Swit").await;
        assert!(half.contains("closed the connection before"), "{half}");
        let plain = said_of(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await;
        assert!(plain.contains("not as a WebSocket server"), "{plain}");
        let tls = said_of(b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 13\r\n\r\nuse https\x1b[2J").await;
        assert!(tls.ends_with("answered 400 Bad Request: use https[2J"), "{tls}");
        let full =
            said_of(b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\r\nno upstream").await;
        assert!(full.ends_with("we try again (the answer says: no upstream)"), "{full}");
        let alert = said_of(b"\x15\x03\x01\x00\x02\x02\x46").await;
        assert!(alert.contains("does it want TLS (https://)?"), "{alert}");
        let greeting = said_of(b"220 mail.example ESMTP\r\n").await;
        assert!(greeting.contains("is it another service"), "{greeting}");
    }
}
