//! A whole server with limits, over HTTP: submissions beyond a limit are refused as a whole, and `GET /api/limits` shows what is in use.

use std::net::SocketAddr;
use std::path::Path;

use longshore_server::config::Settings;
use longshore_server::{Server, ServerError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const JOBS: &str = "
jobs:
  refused: {image: busybox, concurrency: {limit: 1, key: labels.tenant, on_full: reject}}
  newest: {image: busybox, concurrency: {limit: 1, group: site, on_full: cancel_oldest}}
  narrow: {image: busybox, max_queued: 2}
  plain: {image: busybox}
  sized:
    image: busybox
    params: {size: {type: integer, default: 3}}
    concurrency: {limit: 1, key: params.size, on_full: reject}
    rate_limit: {limit: 1, per: 1h, key: params.size}
";

/// Asks the server; the head and the document of its answer.
async fn ask(server: SocketAddr, method: &str, path: &str, body: &str) -> (String, Value) {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_lowercase(), serde_json::from_str(body).expect("a document"))
}

async fn submit(server: SocketAddr, name: &str, tenant: &str) -> (String, Value) {
    let body = json!({"labels": {"tenant": tenant}}).to_string();
    ask(server, "POST", &format!("/api/jobs/{name}"), &body).await
}

async fn start(
    home: &Path,
    max_queued: Option<&str>,
) -> (SocketAddr, CancellationToken, JoinHandle<Result<(), ServerError>>) {
    let jobs_file = home.join("jobs.yaml");
    std::fs::write(&jobs_file, JOBS).expect("the place is writable");
    let settings = Settings {
        listen: "127.0.0.1:0".to_owned(),
        data_dir: home.join("data"),
        jobs_file,
        max_running: Some("7".to_owned()),
        max_queued: max_queued.map(str::to_owned),
        ..Settings::default()
    };
    let leaving = CancellationToken::new();
    let config = settings.check().expect("the settings are right");
    let server = Server::start(config, leaving.clone()).await.expect("it starts");
    (server.address(), leaving, tokio::spawn(server.run()))
}

fn is_refused(head: &str, problem: &Value, code: &str) -> bool {
    head.starts_with("http/1.1 429") && head.contains("\nretry-after: 10\r") && problem["code"] == code
}

#[tokio::test]
async fn a_full_limit_refuses_its_key_only_and_outlives_a_restart() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path(), None).await;
    let (head, job) = submit(address, "refused", "acme").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = submit(address, "refused", "acme").await;
    assert!(is_refused(&head, &problem, "limit_full"), "{head} {problem}");
    assert!(problem["detail"].as_str().is_some_and(|it| it.contains("refused [acme]")), "{problem}");
    let (head, job) = submit(address, "refused", "globex").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");

    let (address, leaving, served) = start(home.path(), None).await;
    let (head, problem) = submit(address, "refused", "acme").await;
    assert!(is_refused(&head, &problem, "limit_full"), "{head} {problem}");
    let (_, limits) = ask(address, "GET", "/api/limits", "").await;
    let expected = json!([
        {"kind": "server", "name": "max_running", "limit": 7, "in_use": 0, "waiting": 2},
        {"kind": "definition", "name": "refused", "key": "acme", "limit": 1, "in_use": 0, "waiting": 1},
        {"kind": "definition", "name": "refused", "key": "globex", "limit": 1, "in_use": 0, "waiting": 1},
    ]);
    assert_eq!(limits, expected);
    let (_, definition) = ask(address, "GET", "/api/definitions/refused", "").await;
    assert_eq!(definition["limits"].as_array().map(Vec::as_slice), limits.as_array().map(|all| &all[1..]));
    ask(address, "POST", "/api/jobs/1/cancel", "").await;
    let (head, job) = submit(address, "refused", "acme").await;
    assert!(head.starts_with("http/1.1 201"), "the first one has ended: {job}");
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}

#[tokio::test]
async fn a_parameter_is_a_key_and_its_default_is_the_value_of_jobs_without_it() {
    let home = tempfile::tempdir().expect("a directory");
    let (server, leaving, running) = start(home.path(), None).await;
    for (body, status) in
        [("", "201"), (r#"{"params":{"size":3}}"#, "429"), (r#"{"params":{"size":4}}"#, "201")]
    {
        let (head, told) = ask(server, "POST", "/api/jobs/sized", body).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{body}: {head} {told}");
    }
    let (_, limits) = ask(server, "GET", "/api/limits?name=sized", "").await;
    let shown = limits.as_array().expect("a list").iter().filter(|it| it["name"] == "sized");
    let shown = shown.map(|it| (it["kind"].clone(), it["key"].clone()));
    let expected = [("definition", "3"), ("definition", "4"), ("rate", "3"), ("rate", "4")];
    assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(kind, key)| (json!(kind), json!(key))), "{limits}");
    leaving.cancel();
    running.await.expect("no panic").expect("it leaves well");
}

#[tokio::test]
async fn a_newer_job_takes_the_place_of_the_oldest_one_of_its_group() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path(), None).await;
    for _ in 0..2 {
        let (head, job) = submit(address, "newest", "").await;
        assert!(head.starts_with("http/1.1 201"), "{job}");
    }
    let (_, oldest) = ask(address, "GET", "/api/jobs/1", "").await;
    assert_eq!((&oldest["state"], &oldest["success"]), (&json!("cancelled"), &json!(false)), "{oldest}");
    assert_eq!(oldest["reason"], "cancelled by job 2, which takes its place");
    let (_, limits) = ask(address, "GET", "/api/limits?name=site", "").await;
    assert_eq!((&limits[1]["kind"], &limits[1]["waiting"]), (&json!("group"), &json!(1)), "{limits}");
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}

#[tokio::test]
async fn no_more_jobs_wait_than_the_definition_and_the_server_allow() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path(), Some("3")).await;
    for _ in 0..2 {
        let (head, job) = submit(address, "narrow", "").await;
        assert!(head.starts_with("http/1.1 201"), "{job}");
    }
    let (head, problem) = submit(address, "narrow", "").await;
    assert!(is_refused(&head, &problem, "too_many_queued"), "{head} {problem}");
    let (head, job) = submit(address, "plain", "").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = submit(address, "plain", "").await;
    assert!(is_refused(&head, &problem, "too_many_queued"), "{head} {problem}");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("--max-queued")), "{problem}");
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}
