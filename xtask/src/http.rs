//! The little of HTTP that a demonstration needs, without a library.
//!
//! Requests say HTTP/1.0: the server then ends a body by closing the connection, so that there are no chunks to undo and a followed
//! log is simply bytes until the end.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The API of one server.
#[derive(Clone)]
pub(crate) struct Api {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The token that requests carry.
    pub token: Option<String>,
}

/// An answer in JSON: what it means, and displayed, exactly what came.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    value: Value,
}

impl Deref for Answer {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl Api {
    /// The API of a server on this address, without a token.
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns true if the server reports that it takes jobs.
    pub(crate) async fn is_ready(&self) -> bool {
        let asked = timeout(READY_MAX, self.request("GET", "/readyz")).await;
        matches!(asked, Ok(Ok(_)))
    }

    /// Asks for JSON.
    ///
    /// # Errors
    /// No answer within a minute and a half, a status other than 2xx, or a body that is not JSON.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.json("GET", path).await
    }

    /// Posts without a body.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub(crate) async fn post(&self, path: &str) -> anyhow::Result<Answer> {
        self.json("POST", path).await
    }

    /// Reads a body line by line as it comes, until the server ends it. The last line need not end with a newline.
    ///
    /// # Errors
    /// No connection, a status other than 2xx, or more than two minutes of silence.
    pub(crate) async fn follow(
        &self,
        method: &str,
        path: &str,
        mut line: impl FnMut(&str),
    ) -> anyhow::Result<()> {
        let mut body = self.request(method, path).await?;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = timeout(SILENCE_MAX, body.read_until(b'\n', &mut bytes)).await;
            if read.with_context(|| format!("{method} {path}: silent for {SILENCE_MAX:?}"))?? == 0 {
                return Ok(());
            }
            line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
        }
    }

    async fn json(&self, method: &str, path: &str) -> anyhow::Result<Answer> {
        let whole = async {
            let mut body = String::new();
            self.request(method, path).await?.read_to_string(&mut body).await?;
            anyhow::Ok(body)
        };
        let text = timeout(ANSWER_MAX, whole)
            .await
            .with_context(|| format!("{method} {path}: no answer within {ANSWER_MAX:?}"))??;
        let value = serde_json::from_str(&text)
            .with_context(|| format!("{method} {path}: the answer is not JSON: {text}"))?;
        Ok(Answer { text, value })
    }

    /// Sends a request and reads the head of the answer; what remains to be read is its body.
    async fn request(&self, method: &str, path: &str) -> anyhow::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address).await?;
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\n{}Content-Length: 0\r\n\r\n",
            self.address,
            token.collect::<String>()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        timeout(ANSWER_MAX, answer.read_line(&mut line))
            .await
            .with_context(|| format!("{method} {path}: no answer"))??;
        let status: u16 = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("{method} {path}: not an HTTP answer: {line:?}"))?;
        while line.trim_end() != "" {
            line.clear();
            answer.read_line(&mut line).await?;
        }
        if !(200..300).contains(&status) {
            let mut problem = String::new();
            answer.read_to_string(&mut problem).await?;
            bail!("{method} {path}: status {status}: {problem}");
        }
        Ok(answer)
    }
}

const READY_MAX: Duration = Duration::from_secs(2);
/// Longer than any `?wait=` that is used here.
const ANSWER_MAX: Duration = Duration::from_secs(90);
/// The jobs followed here say something every second.
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives one answer, whatever is asked, and closes.
    async fn answering(answer: &'static str) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        Api::new(address)
    }

    #[tokio::test]
    async fn json_is_read_until_the_server_closes() {
        let api = answering("HTTP/1.0 201 Created\r\nLocation: /api/jobs/7\r\n\r\n{\"id\":7}").await;
        assert_eq!(api.post("/api/jobs/x").await.unwrap()["id"], 7);
    }

    #[tokio::test]
    async fn lines_are_followed_even_if_the_last_has_no_newline() {
        let api = answering("HTTP/1.0 200 OK\r\n\r\none\ntwo").await;
        let mut lines = Vec::new();
        api.follow("GET", "/logs", |line| lines.push(line.to_owned())).await.unwrap();
        assert_eq!(lines, ["one", "two"]);
    }

    #[tokio::test]
    async fn readiness_is_a_matter_of_the_status_alone() {
        assert!(answering("HTTP/1.0 200 OK\r\n\r\nready\n").await.is_ready().await);
        assert!(!answering("HTTP/1.0 503 Service Unavailable\r\n\r\nready\n").await.is_ready().await);
    }

    #[tokio::test]
    async fn a_problem_is_an_error_that_shows_its_text() {
        let api = answering("HTTP/1.0 404 Not Found\r\n\r\n{\"code\":\"no_such_job\"}").await;
        let error = api.get("/api/jobs/9").await.unwrap_err().to_string();
        assert!(error.contains("404") && error.contains("no_such_job"), "{error}");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_is_an_error() {
        let api = answering("SSH-2.0-OpenSSH\r\n").await;
        assert!(api.get("/").await.unwrap_err().to_string().contains("not an HTTP answer"));
    }
}
