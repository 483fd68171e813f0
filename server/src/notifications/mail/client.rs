//! The SMTP client: one conversation for each mail.
//!
//! A try that fails is made again by the delivery, unless the mail server refuses this recipient or this text for good. A wrong password or
//! a missing permission is refused before that, and is tried again: the operator can mend it within the day.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lettre::transport::smtp;
use lettre::transport::smtp::authentication::Mechanism;
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::compose::Mail;
use super::error::{MailError, TIMEOUT};
use super::server::{Encryption, MailServer};

/// The time for the good-bye after a mail that was taken.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that a mail server may send in one conversation.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends mails to one mail server.
#[derive(Clone)]
pub struct MailClient {
    server: MailServer,
    /// For [`Encryption::StartTls`].
    start_tls: TlsParameters,
    /// For [`Encryption::Tls`].
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for MailClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailClient").field("server", &self.server).finish_non_exhaustive()
    }
}

impl MailClient {
    /// A client that trusts the certificates of the system, as `tls` does.
    ///
    /// # Errors
    /// The TLS library cannot be set up.
    pub fn new(server: MailServer, tls: Arc<ClientConfig>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let start_tls = TlsParameters::new_rustls(server.host.clone())?;
        Ok(Self { server, start_tls, tls })
    }

    /// The mail server.
    #[must_use]
    pub const fn server(&self) -> &MailServer {
        &self.server
    }

    /// Hands a mail to the mail server.
    ///
    /// # Errors
    /// See [`MailError`].
    ///
    /// # Cancel safety
    /// A cancelled call may have sent the mail.
    pub async fn send(&self, mail: &Mail) -> Result<(), MailError> {
        let mut connection = None;
        let sent = timeout(TIMEOUT, self.converse(&mut connection, mail)).await;
        let sent = sent.unwrap_or_else(|_| Err(MailError::Timeout { server: self.server.to_string() }));
        let is_broken = matches!(sent, Err(MailError::Timeout { .. } | MailError::Connection { .. }));
        // The library panics on a connection whose TLS handshake has failed.
        if let Some(mut connection) = connection.filter(|_| !is_broken) {
            // The mail was taken or refused before; nothing depends on the good-bye.
            let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        }
        sent
    }

    async fn converse(&self, place: &mut Option<AsyncSmtpConnection>, mail: &Mail) -> Result<(), MailError> {
        let hello = ClientId::Domain(self.server.sender.domain().to_owned());
        let stream = self.connect().await.map_err(|cause| self.failed(cause))?;
        let connection = AsyncSmtpConnection::connect_with_transport(stream, &hello).await;
        let connection = place.insert(connection.map_err(|cause| self.refused(cause))?);
        if self.server.encryption == Encryption::StartTls {
            if !connection.can_starttls() {
                return Err(MailError::NoStartTls(self.server.to_string()));
            }
            let encrypted = connection.starttls(self.start_tls.clone(), &hello).await;
            encrypted.map_err(|cause| self.refused(cause))?;
        }
        if let Some(login) = &self.server.login {
            let accepted = connection.auth(&MECHANISMS, &login.credentials()).await;
            accepted.map_err(|cause| match cause.status() {
                Some(_) => {
                    MailError::Login { server: self.server.to_string(), user: login.user().to_owned(), cause }
                }
                None => self.refused(cause),
            })?;
        }
        let sender = self.server.sender.0.email.clone();
        let accepted = connection.command(MailFrom::new(Some(sender), Vec::new())).await;
        accepted.map_err(|cause| self.refused(cause))?;
        let accepted = connection.command(Rcpt::new(mail.recipient.address().clone(), Vec::new())).await;
        accepted.map_err(|cause| self.rejected(cause))?;
        connection.command(Data).await.map_err(|cause| self.refused(cause))?;
        connection.message(&mail.bytes).await.map_err(|cause| self.rejected(cause))?;
        Ok(())
    }

    async fn connect(&self) -> Result<Box<dyn AsyncTokioStream>, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect((self.server.host.as_str(), self.server.port)).await?;
        let peer = stream.peer_addr()?;
        if self.server.encryption == Encryption::Tls {
            let name = ServerName::try_from(self.server.host.clone())?;
            let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
            return Ok(Box::new(LimitedStream { stream, peer, left: ANSWER_BYTES_MAX }));
        }
        Ok(Box::new(LimitedStream { stream, peer, left: ANSWER_BYTES_MAX }))
    }

    fn failed(&self, cause: Box<dyn Error + Send + Sync>) -> MailError {
        MailError::Connection { server: self.server.to_string(), cause }
    }

    /// An answer of the mail server that may be another one later, or an error of the network.
    fn refused(&self, cause: smtp::Error) -> MailError {
        match cause.status() {
            Some(_) => MailError::Refused { server: self.server.to_string(), cause },
            None => self.failed(cause.into()),
        }
    }

    /// An answer about this recipient or this text: with a code of 5xx it stays the same.
    fn rejected(&self, cause: smtp::Error) -> MailError {
        if cause.is_permanent() {
            return MailError::Rejected { server: self.server.to_string(), cause };
        }
        self.refused(cause)
    }
}

/// Ways to log in, the best first. Both send the password itself, so the connection must be encrypted or stay on this machine.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// A connection that ends with an error after a number of bytes: the library reads lines of any length.
#[derive(Debug)]
struct LimitedStream<S> {
    stream: S,
    peer: SocketAddr,
    /// Bytes that may still come.
    left: usize,
}

impl<S> AsyncTokioStream for LimitedStream<S>
where
    S: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug,
{
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, into);
        let Some(left) = self.left.checked_sub(into.filled().len() - before) else {
            return Poll::Ready(Err(io::Error::other("it answered too much")));
        };
        self.left = left;
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use protocol::Timestamp;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::notifications::client::tls_client_config;
    use crate::notifications::mail::Recipient;
    use crate::notifications::mail::server::Sender;

    /// The error of a mail to a server that says this, again and again, and reads nothing.
    async fn send_to(says: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its number").port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            while !says.is_empty() && stream.write_all(says.as_bytes()).await.is_ok() {}
            // The connection stays open.
            std::future::pending::<()>().await;
        });
        let sender = Sender::parse("longshore@example.org").expect("a sender");
        let (encryption, host) = (Encryption::None, "127.0.0.1".to_owned());
        let server = MailServer { encryption, host, port, sender, login: None };
        let tls = Arc::new(tls_client_config().expect("TLS"));
        let client = MailClient::new(server, tls).expect("a client");
        let recipient = Recipient::parse("ops@example.org").expect("an address");
        let bytes = format!("Date: {}\r\n\r\n", Timestamp(0).0).into_bytes();
        let error = client.send(&Mail { recipient, bytes }).await.expect_err("no mail is taken");
        assert!(!error.is_permanent(), "{error}");
        error.to_string().replace(&port.to_string(), "PORT")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up_after_a_while() {
        assert_eq!(send_to("").await, "mail server 127.0.0.1:PORT did not answer within 30 s");
    }

    #[tokio::test]
    async fn a_server_that_never_ends_its_line_is_cut_off() {
        let error = send_to("220 welcome ").await;
        assert!(error.contains("it answered too much"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_none_is_named() {
        let error = send_to("HTTP/1.1 400 Bad Request\r\n").await;
        assert!(error.starts_with("mail server 127.0.0.1:PORT: response error"), "{error}");
    }
}
