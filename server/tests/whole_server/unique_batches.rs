//! A whole server with unique keys of batches, over HTTP: a request whose key is taken gets the batch that has it, is refused, or replaces it.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::RunningServer;

const JOBS: &str = "
jobs:
  step: {image: busybox}
  other: {image: busybox}
  brief: {image: busybox, queue_timeout: 1s}
  tenant: {image: busybox, unique: {key: params.tenant}, params: {tenant: {type: string, default: acme}}}
";

async fn start(home: &Path) -> RunningServer {
    RunningServer::start(home, JOBS, |_| {}).await
}

/// Submits two steps under a key, with the rest of the query.
async fn push(server: &RunningServer, key: &str, rest: &str) -> (String, Value) {
    let list = json!([{"name": "step"}, {"name": "other", "after": ["step"]}]).to_string();
    server.ask("POST", &format!("/api/jobs?batch_unique_key={key}{rest}"), &list).await
}

#[track_caller]
fn assert_made((head, batch): &(String, Value), id: u64, replaces: Option<u64>) {
    assert!(head.starts_with("http/1.1 201"), "{head} {batch}");
    assert_eq!((&batch["batch"], &batch["replaces"]), (&json!(id), &json!(replaces)), "{batch}");
}

#[track_caller]
fn assert_existing((head, batch): &(String, Value), id: u64, count: u64) {
    assert!(
        head.starts_with("http/1.1 200") && head.contains("\nunique-duplicate: true\r"),
        "{head} {batch}"
    );
    assert!(head.contains(&format!("location: /api/batches/{id}\r")), "{head}");
    assert_eq!((&batch["batch"], &batch["existing"]), (&json!(id), &json!(true)), "{batch}");
    assert_eq!((&batch["first"], &batch["count"]), (&json!(id), &json!(count)), "{batch}");
}

#[track_caller]
fn assert_refused((head, problem): &(String, Value), holder: u64) {
    assert!(head.starts_with("http/1.1 409"), "{head} {problem}");
    assert_eq!(
        (&problem["code"], &problem["batch"]),
        (&json!("duplicate_batch"), &json!(holder)),
        "{problem}"
    );
}

async fn batch(server: &RunningServer, id: u64) -> Value {
    server.get(&format!("/api/batches/{id}")).await.1
}

#[tokio::test]
async fn a_request_whose_key_is_taken_gets_the_batch_that_has_it_or_is_refused() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    assert_made(&push(&server, "main", "").await, 1, None);
    assert_existing(&push(&server, "main", "&on_duplicate=return").await, 1, 2);
    assert_refused(&push(&server, "main", "&on_duplicate=reject").await, 1);
    assert_made(&push(&server, "release", "").await, 3, None);
    let body = json!({"count": 3, "batch_unique_key": "main"}).to_string();
    assert_existing(&server.ask("POST", "/api/jobs/step", &body).await, 1, 2);
    let shown = batch(&server, 1).await;
    assert_eq!((&shown["unique_key"], &shown["on_duplicate"]), (&json!("main"), &json!("return")), "{shown}");
    let (_, found) = server.get("/api/batches?unique_key=release").await;
    assert_eq!((found[0]["id"].clone(), found.as_array().map(Vec::len)), (json!(3), Some(1)), "{found}");
    server.stop().await;

    let server = start(home.path()).await;
    assert_existing(&push(&server, "main", "").await, 1, 2);
    server.ask("POST", "/api/batches/1/cancel", "").await;
    assert_made(&push(&server, "main", "&on_duplicate=reject").await, 5, None);
    server.stop().await;
}

#[tokio::test]
async fn a_replaced_batch_is_cancelled_as_a_whole_and_names_the_newer_one() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    assert_made(&push(&server, "main", "&on_duplicate=replace").await, 1, None);
    assert_made(&push(&server, "main", "&on_duplicate=replace").await, 3, Some(1));
    let first = batch(&server, 1).await;
    assert_eq!((&first["state"], &first["replaced_by"]), (&json!("cancelled"), &json!(3)), "{first}");
    assert_eq!(first["cancelled_by"], "batch 3, which replaces it", "{first}");
    for member in [1, 2] {
        let (_, job) = server.get(&format!("/api/jobs/{member}")).await;
        assert_eq!(job["reason"], "cancelled by batch 3, which replaces it", "{job}");
    }
    let second = batch(&server, 3).await;
    assert_eq!((&second["state"], &second["replaced_by"]), (&json!("waiting"), &Value::Null), "{second}");
    server.stop().await;

    let server = start(home.path()).await;
    assert_existing(&push(&server, "main", "").await, 3, 2);
    server.stop().await;
}

#[tokio::test]
async fn a_retry_of_a_batch_takes_its_key_and_replaces_nothing() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    assert_made(&push(&server, "main", "&on_duplicate=replace").await, 1, None);
    assert_made(&push(&server, "main", "&on_duplicate=replace").await, 3, Some(1));
    let retry = "/api/batches/1/retry?cancelled=1";
    assert_refused(&server.ask("POST", retry, "").await, 3);
    assert_eq!(batch(&server, 3).await["state"], "waiting");
    server.ask("POST", "/api/batches/3/cancel", "").await;
    let (head, made) = server.ask("POST", retry, "").await;
    assert!(head.starts_with("http/1.1 201"), "{head} {made}");
    let again = batch(&server, made["batch"].as_u64().expect("a number")).await;
    assert_eq!(
        (&again["unique_key"], &again["on_duplicate"]),
        (&json!("main"), &json!("replace")),
        "{again}"
    );
    // With `return` the answer is the batch that has the key.
    let body = json!({"count": 2, "batch_unique_key": "once"}).to_string();
    assert_made(&server.ask("POST", "/api/jobs/brief", &body).await, 7, None);
    let (_, ended) = server.get("/api/batches/7?wait=60s").await;
    assert_eq!(ended["state"], "failed", "{ended}");
    assert_made(&push(&server, "once", "").await, 9, None);
    let answer = server.ask("POST", "/api/batches/7/retry", "").await;
    assert_existing(&answer, 9, 2);
    assert_eq!(answer.1["retry_of"], 7, "{}", answer.1);
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_by_its_idempotency_key_first() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let list = json!([{"name": "step"}]).to_string();
    let send = async |key: &'static str| {
        let path = "/api/jobs?batch_unique_key=main&on_duplicate=replace";
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        server.send("POST", path, &headers, &list).await
    };
    assert_made(&send("first").await, 1, None);
    assert_made(&send("second").await, 2, Some(1));
    for (key, id) in [("first", 1), ("second", 2)] {
        let (head, again) = send(key).await;
        assert!(head.starts_with("http/1.1 200") && head.contains("\nidempotent-replay: true\r"), "{head}");
        assert_eq!((&again["batch"], &again["replayed"]), (&json!(id), &json!(true)), "{again}");
    }
    assert_eq!(
        batch(&server, 2).await["state"],
        "waiting",
        "the repetition of the older request replaces nothing"
    );
    let path = "/api/jobs?batch_unique_key=main&on_duplicate=reject";
    let headers = [("idempotency-key", "second"), ("content-type", "application/json")];
    let (head, problem) = server.send("POST", path, &headers, &list).await;
    assert!(head.starts_with("http/1.1 409") && problem["code"] == "idempotency_mismatch", "{problem}");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_not_made_replaces_nothing() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    server.ask("POST", "/api/jobs/tenant", "").await;
    assert_made(&push(&server, "main", "&on_duplicate=replace").await, 2, None);
    let path = "/api/jobs?batch_unique_key=main&on_duplicate=replace";
    let duplicate = json!([{"name": "tenant"}]).to_string();
    let (head, nothing) = server.ask("POST", path, &duplicate).await;
    assert!(head.starts_with("http/1.1 200") && nothing["count"] == 0, "{head} {nothing}");
    let (head, problem) = server.ask("POST", path, &json!([{"name": "nosuch"}]).to_string()).await;
    assert!(head.starts_with("http/1.1 404"), "{head} {problem}");
    assert_eq!(batch(&server, 2).await["state"], "waiting");
    for (query, field) in [
        ("on_duplicate=replace", "?on_duplicate"),
        ("batch_unique_key=a&on_duplicate=cancel", "?on_duplicate"),
        ("batch_unique_key=", "?batch_unique_key"),
    ] {
        let (head, problem) = server.ask("POST", &format!("/api/jobs?{query}"), &duplicate).await;
        assert!(head.starts_with("http/1.1 422") && problem["field"] == field, "{query}: {head} {problem}");
    }
    let body = json!({"batch_unique_key": "a"}).to_string();
    let (head, problem) = server.ask("POST", "/api/jobs/step", &body).await;
    assert!(head.starts_with("http/1.1 422") && problem["field"] == "batch_unique_key", "{head} {problem}");
    server.stop().await;
}

/// More members than one step makes or cancels.
#[tokio::test]
async fn large_batches_replace_each_other() {
    const COUNT: u64 = 5_000;
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let body = json!({"count": COUNT, "batch_unique_key": "main", "on_duplicate": "replace"}).to_string();
    assert_made(&server.ask("POST", "/api/jobs/step", &body).await, 1, None);
    assert_made(&server.ask("POST", "/api/jobs/step", &body).await, 1 + COUNT, Some(1));
    let (_, first) = server.get("/api/batches/1?wait=60s").await;
    assert_eq!((&first["state"], &first["replaced_by"]), (&json!("cancelled"), &json!(1 + COUNT)), "{first}");
    assert_eq!(first["counts"]["cancelled"], json!(COUNT), "{first}");
    let second = batch(&server, 1 + COUNT).await;
    assert_eq!(second["counts"]["queued"], json!(COUNT), "{second}");
    server.stop().await;
}
