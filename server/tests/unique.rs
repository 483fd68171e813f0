//! A whole server with unique keys, over HTTP: duplicates are answered with the job that has the key, also after a restart.

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
  same: {image: busybox, unique: {}}
  tenant: {image: busybox, unique: {key: params.tenant}, params: {tenant: {type: string, default: acme}}}
  refused: {image: busybox, unique: {key: labels.tenant, on_duplicate: reject}}
  newest: {image: busybox, unique: {key: all, on_duplicate: replace}}
  plain: {image: busybox}
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

async fn submit(server: SocketAddr, name: &str, body: Value) -> (String, Value) {
    ask(server, "POST", &format!("/api/jobs/{name}"), &body.to_string()).await
}

async fn start(home: &Path) -> (SocketAddr, CancellationToken, JoinHandle<Result<(), ServerError>>) {
    let jobs_file = home.join("jobs.yaml");
    std::fs::write(&jobs_file, JOBS).expect("the place is writable");
    let settings = Settings {
        listen: "127.0.0.1:0".to_owned(),
        data_dir: home.join("data"),
        jobs_file,
        ..Settings::default()
    };
    let leaving = CancellationToken::new();
    let config = settings.check().expect("the settings are right");
    let server = Server::start(config, leaving.clone()).await.expect("it starts");
    (server.address(), leaving, tokio::spawn(server.run()))
}

async fn stop(leaving: CancellationToken, served: JoinHandle<Result<(), ServerError>>) {
    leaving.cancel();
    served.await.expect("it does not panic").expect("it leaves in good order");
}

#[track_caller]
fn assert_made((head, job): &(String, Value), id: u64) {
    assert!(head.starts_with("http/1.1 201"), "{head} {job}");
    assert_eq!((&job["id"], &job["duplicate"]), (&json!(id), &Value::Null), "{job}");
    assert!(!head.contains("unique-duplicate"), "{head}");
}

#[track_caller]
fn assert_duplicate((head, job): &(String, Value), id: u64) {
    assert!(head.starts_with("http/1.1 200"), "{head} {job}");
    assert_eq!((&job["id"], &job["duplicate"]), (&json!(id), &json!(true)), "{job}");
    assert!(head.contains("\nunique-duplicate: true\r"), "{head}");
}

#[tokio::test]
async fn a_duplicate_is_answered_with_the_job_that_has_the_key_also_after_a_restart() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path()).await;
    assert_made(&submit(address, "same", json!({"args": ["a"]})).await, 1);
    assert_duplicate(&submit(address, "same", json!({"args": ["a"], "priority": 3})).await, 1);
    assert_made(&submit(address, "same", json!({"args": ["b"]})).await, 2);
    assert_made(&submit(address, "tenant", json!({})).await, 3);
    assert_duplicate(&submit(address, "tenant", json!({"params": {"tenant": "acme"}})).await, 3);
    assert_duplicate(
        &submit(address, "tenant", json!({"unique_key": "acme", "params": {"tenant": "b"}})).await,
        3,
    );
    stop(leaving, served).await;

    let (address, leaving, served) = start(home.path()).await;
    assert_duplicate(&submit(address, "same", json!({"args": ["a"]})).await, 1);
    assert_duplicate(&submit(address, "tenant", json!({})).await, 3);
    let (head, _) = ask(address, "POST", "/api/jobs/3/cancel", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_made(&submit(address, "tenant", json!({})).await, 4);
    let (head, problem) = submit(address, "plain", json!({"unique_key": "a"})).await;
    assert!(head.starts_with("http/1.1 422"), "{head}");
    assert_eq!((&problem["code"], &problem["field"]), (&json!("override_not_allowed"), &json!("unique_key")));
    let (head, problem) = submit(address, "same", json!({"unique_key": ""})).await;
    assert!(head.starts_with("http/1.1 422") && problem["field"] == "unique_key", "{head} {problem}");
    stop(leaving, served).await;
}

#[tokio::test]
async fn a_refused_duplicate_names_the_job_that_has_the_key() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path()).await;
    let acme = || json!({"labels": {"tenant": "acme"}});
    assert_made(&submit(address, "refused", acme()).await, 1);
    let (head, problem) = submit(address, "refused", acme()).await;
    assert!(head.starts_with("http/1.1 409"), "{head}");
    assert_eq!((&problem["code"], &problem["job"]), (&json!("duplicate_job"), &json!(1)), "{problem}");
    let twice = json!([{"name": "refused"}, {"name": "plain"}, {"name": "refused"}]).to_string();
    let (head, problem) = ask(address, "POST", "/api/jobs", &twice).await;
    assert!(head.starts_with("http/1.1 409"), "{head}");
    assert_eq!((&problem["code"], &problem["job"]), (&json!("duplicate_job"), &Value::Null), "{problem}");
    let (_, shown) = ask(address, "GET", "/api/definitions/refused", "").await;
    let rule = json!({"key": "labels.tenant", "on_duplicate": "reject", "clear": ["success", "failed"]});
    assert_eq!(shown["unique"], rule, "{shown}");
    stop(leaving, served).await;
}

#[tokio::test]
async fn a_job_that_waits_is_replaced_and_retried_under_its_key() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path()).await;
    assert_made(&submit(address, "newest", json!({})).await, 1);
    assert_made(&submit(address, "newest", json!({})).await, 2);
    let (_, first) = ask(address, "GET", "/api/jobs/1", "").await;
    assert_eq!(first["reason"], "cancelled by job 2, which replaces it", "{first}");
    assert_made(&ask(address, "POST", "/api/jobs/1/retry", "").await, 3);
    let (_, second) = ask(address, "GET", "/api/jobs/2", "").await;
    assert_eq!(second["state"], "cancelled", "{second}");
    stop(leaving, served).await;
}

#[tokio::test]
async fn members_of_a_batch_that_are_duplicates_are_left_out_and_counted() {
    let home = tempfile::tempdir().expect("a place");
    let (address, leaving, served) = start(home.path()).await;
    let each = |tenants: &[&str]| json!({"each": tenants.iter().map(|tenant| json!({"tenant": tenant})).collect::<Vec<_>>()});
    let (head, batch) = submit(address, "tenant", each(&["a", "b", "a"])).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    assert_eq!((&batch["count"], &batch["duplicates"]), (&json!(2), &json!(1)), "{batch}");
    let (head, batch) = submit(address, "tenant", each(&["b", "c"])).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    assert_eq!((&batch["first"], &batch["count"], &batch["duplicates"]), (&json!(3), &json!(1), &json!(1)));
    let (head, batch) = submit(address, "tenant", each(&["c", "a"])).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("\nunique-duplicate: true\r"), "{head}");
    assert_eq!((&batch["first"], &batch["count"], &batch["duplicates"]), (&json!(3), &json!(0), &json!(2)));
    let (head, problem) = submit(address, "tenant", json!({"count": 100_000})).await;
    assert!(head.starts_with("http/1.1 422") && problem["code"] == "unique_batch", "{head} {problem}");
    stop(leaving, served).await;
}
