//! A whole server with few places for jobs, over HTTP: what would be too much is refused as a whole, and accepted when some have ended.

use std::net::SocketAddr;
use std::path::Path;

use longshore_server::config::Settings;
use longshore_server::{Server, ServerError};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Asks the server; the head and the document of its answer.
async fn post(server: SocketAddr, path: &str, kind: &str, body: &str) -> (String, Value) {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_lowercase(), serde_json::from_str(body).expect("a document"))
}

async fn make(server: SocketAddr, jobs: usize) -> (String, Value) {
    post(server, "/api/jobs", "application/x-ndjson", &"{\"name\":\"resize\"}\n".repeat(jobs)).await
}

/// Starts it on what is there, with so many places.
async fn start(
    home: &Path,
    max_jobs: &str,
) -> (SocketAddr, CancellationToken, JoinHandle<Result<(), ServerError>>) {
    let jobs_file = home.join("jobs.yaml");
    std::fs::write(&jobs_file, "jobs: { resize: { image: 'resize:1' } }").expect("the place is writable");
    let settings = Settings {
        listen: "127.0.0.1:0".to_owned(),
        data_dir: home.join("data"),
        jobs_file,
        max_jobs: max_jobs.to_owned(),
        ..Settings::default()
    };
    let leaving = CancellationToken::new();
    let config = settings.check().expect("the settings are right");
    let server = Server::start(config, leaving.clone()).await.expect("it starts");
    (server.address(), leaving, tokio::spawn(server.run()))
}

#[tokio::test]
async fn more_jobs_than_there_are_places_for_are_refused_until_some_have_ended() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path(), "3").await;

    let (head, _) = make(address, 2).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    let (head, problem) = make(address, 2).await;
    assert!(head.starts_with("http/1.1 429") && head.contains("\nretry-after: 10\r"), "{head}");
    assert_eq!((&problem["code"], &problem["status"]), (&"queue_full".into(), &429.into()), "{problem}");
    let (head, problem) = make(address, 4).await;
    assert!(head.starts_with("http/1.1 429") && !head.contains("retry-after"), "never would it fit: {head}");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.starts_with("divide the batch")), "{problem}");
    let (head, _) = make(address, 1).await;
    assert!(head.starts_with("http/1.1 201"), "nothing was left of the refused batch: {head}");

    post(address, "/api/jobs/1/cancel", JSON, "").await;
    let (head, job) = post(address, "/api/jobs/1/retry", JSON, "").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = post(address, "/api/jobs/1/retry", JSON, "").await;
    assert!(head.starts_with("http/1.1 429"), "another try is a job like others: {problem}");

    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}

#[tokio::test]
async fn a_store_with_more_jobs_than_places_is_loaded_as_it_is() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path(), "3").await;
    make(address, 3).await;
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");

    let (address, leaving, served) = start(home.path(), "1").await;
    let (head, problem) = make(address, 1).await;
    assert!(head.starts_with("http/1.1 429"), "{problem}");
    for job in 1..=3 {
        let (head, problem) = post(address, &format!("/api/jobs/{job}/cancel"), JSON, "").await;
        assert!(head.starts_with("http/1.1 200"), "{problem}");
    }
    let (head, problem) = make(address, 1).await;
    assert!(head.starts_with("http/1.1 201"), "{problem}");
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}

const JSON: &str = "application/json";
