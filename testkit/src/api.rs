//! An HTTP client for the public API.
//!
//! [`Api::request`], [`Api::try_get`], [`Api::try_post`] and [`Api::follow_lines`] return errors. The other methods are for tests and panic.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::http;
use super::wait::{WAIT_TIMEOUT, wait_at_most, wait_for, wait_until};

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Api {
    client: Client,
    base: String,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// HTTP status code.
    pub status: u16,
    /// The body as JSON; a JSON string if the body is not JSON.
    pub body: Value,
    /// URL of the next page of a list.
    pub next: Option<String>,
    text: String,
}

impl ApiResponse {
    /// Returns true for a 2xx status.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Deref for ApiResponse {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.body
    }
}

/// Shows the body as the server sent it.
impl fmt::Display for ApiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl Api {
    /// Creates a client of the server at this address, `host:port`.
    #[must_use]
    pub fn new(address: &str) -> Self {
        let client = http::client().build().unwrap();
        Self { client, base: format!("http://{address}") }
    }

    /// The URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a `GET` that must succeed and returns the body.
    pub async fn get(&self, path: &str) -> Value {
        self.try_get(path).await.unwrap_or_else(|error| panic!("{error:#}")).body
    }

    /// Sends a `POST` that must succeed and returns the body.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Value {
        let response = self.request(Method::POST, path, body, None).await.unwrap();
        assert!(response.is_success(), "{path}: {response:?}");
        response.body
    }

    /// Sends a request with an optional JSON body and idempotency key; any status is returned.
    ///
    /// # Errors
    /// The server sent no response, or not all of it, within the time limit.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> reqwest::Result<ApiResponse> {
        let mut request = self.client.request(method, self.url(path)).timeout(RESPONSE_TIMEOUT);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await?;
        let (status, next) = (response.status().as_u16(), next_page(&response));
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
        Ok(ApiResponse { status, body, next, text })
    }

    /// Sends a `GET`.
    ///
    /// # Errors
    /// No response within the time limit, or a status other than 2xx.
    pub async fn try_get(&self, path: &str) -> anyhow::Result<ApiResponse> {
        self.succeed(Method::GET, path).await
    }

    /// Sends a `POST` without a body.
    ///
    /// # Errors
    /// As [`Api::try_get`].
    pub async fn try_post(&self, path: &str) -> anyhow::Result<ApiResponse> {
        self.succeed(Method::POST, path).await
    }

    async fn succeed(&self, method: Method, path: &str) -> anyhow::Result<ApiResponse> {
        let what = format!("{method} {path}");
        let response = self.request(method, path, None, None).await.with_context(|| what.clone())?;
        ensure!(response.is_success(), "{what}: status {}: {response}", response.status);
        Ok(response)
    }

    /// Reads a response line by line as it arrives, until the server ends it. The last line need not end with a newline.
    ///
    /// # Errors
    /// No connection, a status other than 2xx, or no data for two minutes.
    pub async fn follow_lines(&self, path: &str, mut on_line: impl FnMut(&str)) -> anyhow::Result<()> {
        let mut response = self.client.get(self.url(path)).send().await?.error_for_status()?;
        let mut line = Vec::new();
        loop {
            let chunk = timeout(SILENCE_TIMEOUT, response.chunk()).await;
            let Some(chunk) =
                chunk.with_context(|| format!("GET {path}: no data for {SILENCE_TIMEOUT:?}"))??
            else {
                break;
            };
            for byte in chunk {
                if byte == b'\n' {
                    on_line(String::from_utf8_lossy(&line).trim_end_matches('\r'));
                    line.clear();
                } else {
                    line.push(byte);
                }
            }
        }
        if !line.is_empty() {
            on_line(&String::from_utf8_lossy(&line));
        }
        Ok(())
    }

    /// Returns true if `/readyz` answers with success.
    pub async fn is_ready(&self) -> bool {
        let response = self.client.get(self.url("/readyz")).timeout(READY_TIMEOUT).send().await;
        response.is_ok_and(|response| response.status().is_success())
    }

    /// Lists all jobs, newest first, page by page.
    pub async fn all_jobs(&self) -> Vec<Value> {
        let mut jobs = Vec::new();
        let mut path = "/api/jobs?limit=500".to_owned();
        loop {
            let response = self.try_get(&path).await.unwrap_or_else(|error| panic!("{error:#}"));
            jobs.extend(response.body.as_array().unwrap().iter().cloned());
            match response.next {
                Some(next) => path = next,
                None => return jobs,
            }
        }
    }

    /// Reads a body as bytes, such as job output.
    pub async fn get_bytes(&self, path: &str) -> Vec<u8> {
        let response = self.client.get(self.url(path)).timeout(RESPONSE_TIMEOUT).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {response:?}");
        response.bytes().await.unwrap().to_vec()
    }

    /// Waits until the server is ready.
    pub async fn wait_until_ready(&self) {
        wait_until("the server is ready", async || self.is_ready().await).await;
    }

    /// Waits until a worker of this name is `ready` and returns it.
    pub async fn wait_for_ready_worker(&self, name: &str) -> Value {
        self.wait_for_worker(name, |worker| worker["state"] == "ready").await
    }

    /// Waits until a worker of this name meets the condition and returns it.
    pub async fn wait_for_worker(&self, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let what = format!("worker {name} meets the condition");
        wait_for(&what, async || {
            let workers = self.get("/api/workers?all=1").await;
            workers.as_array()?.iter().find(|worker| worker["name"] == name && condition(worker)).cloned()
        })
        .await
    }

    /// Waits until a job meets the condition and returns it. Panics with the job as it was last after a minute.
    pub async fn wait_for_job(&self, id: u64, condition: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let met = wait_at_most(WAIT_TIMEOUT, async || {
            last = self.get(&format!("/api/jobs/{id}")).await;
            condition(&last).then_some(())
        })
        .await;
        assert!(met.is_some(), "not within {WAIT_TIMEOUT:?}: job {id} meets the condition: {last}");
        last
    }

    /// Waits until all jobs have ended. The deadline starts anew whenever the number of queued jobs falls.
    pub async fn wait_until_all_ended(&self) {
        let mut queued = self.count_queued().await;
        while queued > 0 {
            queued = wait_for("fewer jobs are queued", async || {
                Some(self.count_queued().await).filter(|now| *now < queued)
            })
            .await;
        }
        let live = "/api/jobs?state=scheduled,queued,assigned,running,quarantined&limit=1";
        wait_until("all jobs have ended", async || self.get(live).await == json!([])).await;
    }

    async fn count_queued(&self) -> u64 {
        let definitions = self.get("/api/definitions").await;
        let reasons =
            definitions.as_array().unwrap().iter().filter_map(|it| it["waiting"].as_array()).flatten();
        reasons.map(|reason| reason["count"].as_u64().unwrap()).sum()
    }
}

/// The URL of the next page, from the `Link` header.
fn next_page(response: &Response) -> Option<String> {
    let link = response.headers().get("link")?.to_str().ok()?;
    let (address, rest) = link.strip_prefix('<')?.split_once('>')?;
    rest.contains("rel=\"next\"").then(|| address.to_owned())
}

/// Longer than any `?wait=` that tests and xtask use.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Jobs that are followed print more often than this.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that sends these bytes to the first connection and closes it.
    async fn serve_once(response: &'static str) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _length = stream.read(&mut request).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        Api::new(&address.to_string())
    }

    #[tokio::test]
    async fn follow_lines_returns_a_last_line_without_a_newline() {
        let api = serve_once("HTTP/1.0 200 OK\r\n\r\none\ntwo").await;
        let mut lines = Vec::new();
        api.follow_lines("/logs", |line| lines.push(line.to_owned())).await.unwrap();
        assert_eq!(lines, ["one", "two"]);
    }

    #[tokio::test]
    async fn readiness_depends_on_the_status_alone() {
        assert!(serve_once("HTTP/1.0 200 OK\r\n\r\nready\n").await.is_ready().await);
        assert!(!serve_once("HTTP/1.0 503 Service Unavailable\r\n\r\nready\n").await.is_ready().await);
    }

    #[tokio::test]
    async fn an_error_status_is_an_error_with_the_body_in_its_text() {
        let api = serve_once("HTTP/1.0 404 Not Found\r\n\r\n{\"code\":\"no_such_job\"}").await;
        let error = api.try_get("/api/jobs/9").await.unwrap_err().to_string();
        assert!(error.contains("404") && error.contains("no_such_job"), "{error}");
    }
}
