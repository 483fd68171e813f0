//! The load generator: kept-alive connections and bodies made beforehand, so that what is measured is the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An address, and what the server behind it asks of clients.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The token of the API.
    pub(crate) token: Option<String>,
    /// Trust in the server's certificate, if it speaks TLS.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address, token: None, tls: None }
    }
}

/// One kept-alive connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: Option<String>,
}

/// Requests that were repeated because the server answered `busy`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries(pub(crate) u64);

impl Connection {
    /// Opens a connection to the server and keeps it for all requests.
    pub(crate) async fn open(endpoint: impl Into<Endpoint>) -> anyhow::Result<Self> {
        let Endpoint { address, token, tls } = endpoint.into();
        let socket = TcpStream::connect(address).await.context("cannot connect")?;
        socket.set_nodelay(true)?;
        let sender = match tls {
            Some(config) => {
                let name = ServerName::from(address.ip());
                Self::handshake(TlsConnector::from(config).connect(name, socket).await?).await?
            }
            None => Self::handshake(socket).await?,
        };
        let authorization = token.map(|token| format!("Bearer {token}"));
        Ok(Self { sender, host: address.to_string(), authorization })
    }

    async fn handshake<S>(socket: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        // Its error is also that of the request under way.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Asks once; the status and the body.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        self.sender.ready().await?;
        let request = self.authorized(Request::builder().method(method).uri(path));
        let request = if body.is_empty() { request } else { request.header("content-type", content_type) };
        let response = self.sender.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    fn authorized(&self, request: Builder) -> Builder {
        let request = request.header("host", &self.host);
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Opens a stream of events, and returns the reading of it until it ends.
    pub(crate) async fn follow(mut self, path: &str) -> anyhow::Result<impl Future<Output = ()> + use<>> {
        let request = self.authorized(Request::builder().uri(path));
        let request = request.header("accept", "text/event-stream").body(Full::default())?;
        let response = self.sender.send_request(request).await?;
        anyhow::ensure!(response.status().is_success(), "GET {path} was answered {}", response.status());
        let mut body = response.into_body();
        Ok(async move {
            // The connection lives as long as its sender.
            let _sender = self.sender;
            while let Some(Ok(_)) = body.frame().await {}
        })
    }

    /// Reads a page. An answer with an error status is an error.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        let (status, body) = self.ask(Method::GET, path, JSON, Bytes::new()).await?;
        if !status.is_success() {
            bail!("GET {path} was answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Reads JSON.
    pub(crate) async fn read(&mut self, path: &str) -> anyhow::Result<serde_json::Value> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body).with_context(|| format!("GET {path} was not answered with JSON"))
    }

    /// Posts until it is accepted; whatever is neither an acceptance nor "later" is an error.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        kind: &'static str,
        body: &Bytes,
        retries: &mut Retries,
    ) -> anyhow::Result<Bytes> {
        loop {
            let (status, answer) = self.ask(Method::POST, path, kind, body.clone()).await?;
            match status {
                StatusCode::CREATED => return Ok(answer),
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                    retries.0 += 1;
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                _ => bail!("POST {path} was answered {status}: {}", String::from_utf8_lossy(&answer)),
            }
        }
    }
}

/// The jobs that a run submits.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// How many jobs.
    pub(crate) jobs: u64,
    /// How many in a request; 1 posts to the definition's own address, without a body.
    pub(crate) batch: u64,
    /// Over how many connections.
    pub(crate) connections: u64,
    /// Of which definition.
    pub(crate) name: &'static str,
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// When the first request was sent.
    pub(crate) began: Instant,
    /// From then until the last answer.
    pub(crate) took: Duration,
    /// Requests that were sent again.
    pub(crate) retries: u64,
}

impl Load {
    /// Submits all of it, as fast as it is accepted.
    pub(crate) async fn submit(&self, endpoint: impl Into<Endpoint>) -> anyhow::Result<Submitted> {
        let line = format!("{{\"name\":\"{}\"}}\n", self.name);
        match self.batch {
            1 => self.send(endpoint, &format!("/api/jobs/{}", self.name), Bytes::new()).await,
            _ => self.send(endpoint, "/api/jobs", line.repeat(self.batch as usize).into()).await,
        }
    }

    /// Sends this request as often as it takes to submit all of it.
    pub(crate) async fn send(
        &self,
        endpoint: impl Into<Endpoint>,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Submitted> {
        let endpoint = endpoint.into();
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(Connection::open(endpoint.clone()).await?);
        }
        let requests = self.jobs.div_ceil(self.batch);
        let began = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for (n, mut connection) in connections.into_iter().enumerate() {
            let share = share(requests, self.connections, n as u64);
            let (body, path) = (body.clone(), path.to_owned());
            senders.spawn(async move {
                let mut retries = Retries::default();
                for _ in 0..share {
                    connection.post(&path, NDJSON, &body, &mut retries).await?;
                }
                anyhow::Ok(retries.0)
            });
        }
        let mut retries = 0;
        while let Some(sent) = senders.join_next().await {
            retries += sent??;
        }
        Ok(Submitted { began, took: began.elapsed(), retries })
    }

    /// How many jobs that makes: whole batches.
    pub(crate) const fn total(&self) -> u64 {
        self.jobs.div_ceil(self.batch) * self.batch
    }
}

/// The n-th connection's part of the requests.
const fn share(requests: u64, connections: u64, n: u64) -> u64 {
    requests / connections + if n < requests % connections { 1 } else { 0 }
}

/// The server asks for a second; a benchmark that waited for it would measure the wait.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!((0..4).map(|n| share(11, 4, n)).collect::<Vec<_>>(), [3, 3, 3, 2]);
    }
}
