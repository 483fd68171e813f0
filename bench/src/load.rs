//! The load generator. It keeps its connections open and makes request bodies beforehand, so the figures are those of the server.

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

/// The address of a server, with what it needs to accept a client. From a plain address: no token, no TLS.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The IP address and port of the server.
    pub(crate) address: SocketAddr,
    /// The access token for the API; none if the server requires none.
    pub(crate) token: Option<String>,
    /// The TLS configuration that trusts the server's certificate; none for plain HTTP.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address, token: None, tls: None }
    }
}

/// One HTTP/1.1 connection, kept open for all of its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: Option<String>,
}

/// Number of requests that were sent again because the server answered 429 or 503.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries(pub(crate) u64);

impl Connection {
    /// Connects to the server, with TLS if the endpoint has a configuration for it.
    ///
    /// # Errors
    /// The server cannot be reached, or the TLS or HTTP handshake fails.
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

    /// Sends one request, and returns the status and the body of the answer. `content_type` is that of a body that is not empty.
    ///
    /// # Errors
    /// The connection broke. An answer with an error status is no error.
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

    /// Opens a stream of server-sent events. The returned future reads it, and completes when the server ends it.
    ///
    /// # Errors
    /// The connection broke, or the answer has an error status.
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

    /// Returns the body of a page.
    ///
    /// # Errors
    /// The connection broke, or the answer has an error status.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        let (status, body) = self.ask(Method::GET, path, JSON, Bytes::new()).await?;
        if !status.is_success() {
            bail!("GET {path} was answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Returns the JSON of a page.
    ///
    /// # Errors
    /// As for [`Self::get`], or the body is not JSON.
    pub(crate) async fn read(&mut self, path: &str) -> anyhow::Result<serde_json::Value> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body).with_context(|| format!("GET {path} was not answered with JSON"))
    }

    /// Posts a body of this content type until the server answers 201, and returns the body of that answer. Answers of 429 and 503 are counted in
    /// `retries`, and the request is sent again after [`BUSY_PAUSE`].
    ///
    /// # Errors
    /// The connection broke, or another status was answered.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        content_type: &'static str,
        body: &Bytes,
        retries: &mut Retries,
    ) -> anyhow::Result<Bytes> {
        loop {
            let (status, answer) = self.ask(Method::POST, path, content_type, body.clone()).await?;
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

    /// Waits until the batch has ended that a POST was answered with.
    async fn wait_for_batch(&mut self, answer: &Bytes) -> anyhow::Result<()> {
        let made: serde_json::Value = serde_json::from_slice(answer)?;
        let id = made["batch"].as_u64().context("the answer to a batch names none")?;
        let batch = self.read(&format!("/api/batches/{id}?wait={BATCH_WAIT}")).await?;
        anyhow::ensure!(batch["state"] == "succeeded", "batch {id} has not succeeded: {batch}");
        Ok(())
    }
}

/// Longest time that a request for a batch waits for its end; the most that the server allows.
const BATCH_WAIT: &str = "10m";

/// The jobs that one run of a benchmark submits, and how.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Number of jobs; rounded up to whole batches, see [`Self::total`].
    pub(crate) jobs: u64,
    /// Jobs in each request; 1 posts to the definition's own path, without a body.
    pub(crate) batch: u64,
    /// Connections that submit at the same time.
    pub(crate) connections: u64,
    /// The definition of the jobs.
    pub(crate) name: &'static str,
    /// When a connection sends its next batch.
    pub(crate) pace: Pace,
}

/// When a connection sends its next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Once the last one is accepted: jobs pile up if they are accepted faster than they run.
    Accepted,
    /// Once the last one has ended: as many jobs are live as the batches of all connections have.
    Ended,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    /// When the first request was sent.
    pub(crate) began: Instant,
    /// Time from the first request until the last answer.
    pub(crate) took: Duration,
    /// Number of requests that were sent again because the server answered 429 or 503.
    pub(crate) retries: u64,
}

impl Load {
    /// Submits all jobs at this pace.
    ///
    /// # Errors
    /// The first error of a connection.
    pub(crate) async fn submit(&self, endpoint: impl Into<Endpoint>) -> anyhow::Result<Submitted> {
        let line = format!("{{\"name\":\"{}\"}}\n", self.name);
        match self.batch {
            1 => self.send(endpoint, &format!("/api/jobs/{}", self.name), Bytes::new()).await,
            _ => self.send(endpoint, "/api/jobs", line.repeat(self.batch as usize).into()).await,
        }
    }

    /// Posts this NDJSON body to `path` once for each batch, over all connections.
    ///
    /// # Errors
    /// The first error of a connection.
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
        let pace = self.pace;
        let began = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for (n, mut connection) in connections.into_iter().enumerate() {
            let share = share(requests, self.connections, n as u64);
            let (body, path) = (body.clone(), path.to_owned());
            senders.spawn(async move {
                let mut retries = Retries::default();
                for _ in 0..share {
                    let answer = connection.post(&path, NDJSON, &body, &mut retries).await?;
                    if pace == Pace::Ended {
                        connection.wait_for_batch(&answer).await?;
                    }
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

    /// Number of jobs that are made: `jobs`, rounded up to whole batches.
    pub(crate) const fn total(&self) -> u64 {
        self.jobs.div_ceil(self.batch) * self.batch
    }
}

/// The number of requests that the n-th connection sends, from 0.
const fn share(requests: u64, connections: u64, n: u64) -> u64 {
    requests / connections + if n < requests % connections { 1 } else { 0 }
}

/// Pause before a request is sent again. The server's `Retry-After` is a second, and a benchmark that waited so long would measure the wait.
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
