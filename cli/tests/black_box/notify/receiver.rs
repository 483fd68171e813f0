//! A receiver of webhooks: it answers with the statuses of its script, and keeps what it was sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A message that was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The path of the request.
    pub(crate) path: String,
    /// The headers, in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body as it was sent.
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Debug, Default)]
struct Inbox {
    received: Vec<Received>,
    answers: VecDeque<String>,
    /// It reads requests and never answers.
    is_silent: bool,
}

/// A server on a port of its own. It ends with its test.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    inbox: Arc<Mutex<Inbox>>,
}

impl Receiver {
    /// Answers with these lines, such as `500 No`, and then with `200 OK`.
    pub(crate) async fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, answers)
    }

    /// Takes every message and never answers.
    pub(crate) async fn silent() -> Self {
        let receiver = Self::start(&[]).await;
        receiver.fall_silent();
        receiver
    }

    /// Answers no message from now on.
    pub(crate) fn fall_silent(&self) {
        self.inbox.lock().unwrap().is_silent = true;
    }

    /// Serves on a port that was taken before.
    pub(crate) fn serve(listener: TcpListener, answers: &[&str]) -> Self {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let inbox = Arc::new(Mutex::new(Inbox { answers, ..Inbox::default() }));
        let receiver = Self { port: listener.local_addr().unwrap().port(), inbox: inbox.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, inbox.clone()));
            }
        });
        receiver
    }

    /// Everything received so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.inbox.lock().unwrap().received.clone()
    }

    /// Waits until this number of messages was received, and returns them.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<Received> {
        testkit::wait_for(&format!("{count} messages"), async || {
            let received = self.received();
            (received.len() >= count).then_some(received)
        })
        .await
    }
}

/// Answers one request, and closes the connection.
async fn answer(mut stream: TcpStream, inbox: Arc<Mutex<Inbox>>) -> Option<()> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[head_end + 4..].to_vec()).ok()?;
    let line = {
        let mut inbox = inbox.lock().unwrap();
        inbox.received.push(Received { path, headers, body });
        let is_silent = inbox.is_silent;
        let next = inbox.answers.pop_front().unwrap_or_else(|| "200 OK".to_owned());
        (!is_silent).then_some(next)
    };
    let Some(line) = line else {
        // Until the sender goes.
        while stream.read_buf(&mut bytes).await.ok()? > 0 {}
        return None;
    };
    let location = if line.starts_with('3') { "location: /elsewhere\r\n" } else { "" };
    let answer = format!("HTTP/1.1 {line}\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.ok()
}
