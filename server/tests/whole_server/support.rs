//! A whole server in the process of the test, and requests to it over TCP.

use std::net::SocketAddr;
use std::path::Path;

use longshore_server::config::{Config, Settings};
use longshore_server::{Server, ServerError};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server that runs until [`Self::stop`].
pub(crate) struct RunningServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    served: JoinHandle<Result<(), ServerError>>,
}

impl RunningServer {
    /// Starts a server with the data in `home`, on a free port. Its jobs.yaml has the text `jobs`.
    pub(crate) async fn start(home: &Path, jobs: &str, change: impl FnOnce(&mut Settings)) -> Self {
        Self::run(check(home, jobs, change)).await
    }

    /// Like [`Self::start`], but changes what the settings have become: values that no setting may have.
    pub(crate) async fn start_with(home: &Path, jobs: &str, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = check(home, jobs, |_| {});
        change(&mut config);
        Self::run(config).await
    }

    async fn run(config: Config) -> Self {
        let shutdown = CancellationToken::new();
        let server = Server::start(config, shutdown.clone()).await.expect("it starts");
        Self { address: server.address(), shutdown, served: tokio::spawn(server.run()) }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.served.await.expect("it does not panic").expect("it leaves in good order");
    }

    /// Sends a request on a connection of its own. Returns the head of the answer in lower case, and its document.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (String, Value) {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let length = body.len();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers in text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_lowercase(), serde_json::from_str(body).expect("a document"))
    }

    /// Sends a request whose body is JSON, or empty.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> (String, Value) {
        self.send(method, path, &[("content-type", "application/json")], body).await
    }

    pub(crate) async fn get(&self, path: &str) -> (String, Value) {
        self.ask("GET", path, "").await
    }
}

fn check(home: &Path, jobs: &str, change: impl FnOnce(&mut Settings)) -> Config {
    let jobs_file = home.join("jobs.yaml");
    std::fs::write(&jobs_file, jobs).expect("the place is writable");
    let listen = "127.0.0.1:0".to_owned();
    let mut settings = Settings { listen, data_dir: home.join("data"), jobs_file, ..Settings::default() };
    change(&mut settings);
    settings.check().expect("the settings are right")
}
