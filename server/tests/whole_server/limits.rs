//! A whole server with limits, over HTTP: submissions beyond a limit are refused as a whole, and `GET /api/limits` shows what is in use.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::RunningServer;

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

async fn submit(server: &RunningServer, name: &str, tenant: &str) -> (String, Value) {
    let body = json!({"labels": {"tenant": tenant}}).to_string();
    server.ask("POST", &format!("/api/jobs/{name}"), &body).await
}

async fn start(home: &Path, max_queued: Option<&str>) -> RunningServer {
    RunningServer::start(home, JOBS, |settings| {
        settings.max_running = Some("7".to_owned());
        settings.max_queued = max_queued.map(str::to_owned);
    })
    .await
}

fn is_refused(head: &str, problem: &Value, code: &str) -> bool {
    head.starts_with("http/1.1 429") && head.contains("\nretry-after: 10\r") && problem["code"] == code
}

#[tokio::test]
async fn a_full_limit_refuses_its_key_only_and_outlives_a_restart() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), None).await;
    let (head, job) = submit(&server, "refused", "acme").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = submit(&server, "refused", "acme").await;
    assert!(is_refused(&head, &problem, "limit_full"), "{head} {problem}");
    assert!(problem["detail"].as_str().is_some_and(|it| it.contains("refused [acme]")), "{problem}");
    let (head, job) = submit(&server, "refused", "globex").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    server.stop().await;

    let server = start(home.path(), None).await;
    let (head, problem) = submit(&server, "refused", "acme").await;
    assert!(is_refused(&head, &problem, "limit_full"), "{head} {problem}");
    let (_, limits) = server.get("/api/limits").await;
    let expected = json!([
        {"kind": "server", "name": "max_running", "limit": 7, "in_use": 0, "waiting": 2},
        {"kind": "definition", "name": "refused", "key": "acme", "limit": 1, "in_use": 0, "waiting": 1},
        {"kind": "definition", "name": "refused", "key": "globex", "limit": 1, "in_use": 0, "waiting": 1},
    ]);
    assert_eq!(limits, expected);
    let (_, definition) = server.get("/api/definitions/refused").await;
    assert_eq!(definition["limits"].as_array().map(Vec::as_slice), limits.as_array().map(|all| &all[1..]));
    server.ask("POST", "/api/jobs/1/cancel", "").await;
    let (head, job) = submit(&server, "refused", "acme").await;
    assert!(head.starts_with("http/1.1 201"), "the first one has ended: {job}");
    server.stop().await;
}

#[tokio::test]
async fn a_parameter_is_a_key_and_its_default_is_the_value_of_jobs_without_it() {
    let home = tempfile::tempdir().expect("a directory");
    let server = start(home.path(), None).await;
    for (body, status) in
        [("", "201"), (r#"{"params":{"size":3}}"#, "429"), (r#"{"params":{"size":4}}"#, "201")]
    {
        let (head, told) = server.ask("POST", "/api/jobs/sized", body).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{body}: {head} {told}");
    }
    let (_, limits) = server.get("/api/limits?name=sized").await;
    let shown = limits.as_array().expect("a list").iter().filter(|it| it["name"] == "sized");
    let shown = shown.map(|it| (it["kind"].clone(), it["key"].clone()));
    let expected = [("definition", "3"), ("definition", "4"), ("rate", "3"), ("rate", "4")];
    assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(kind, key)| (json!(kind), json!(key))), "{limits}");
    server.stop().await;
}

#[tokio::test]
async fn a_newer_job_takes_the_place_of_the_oldest_one_of_its_group() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), None).await;
    for _ in 0..2 {
        let (head, job) = submit(&server, "newest", "").await;
        assert!(head.starts_with("http/1.1 201"), "{job}");
    }
    let (_, oldest) = server.get("/api/jobs/1").await;
    assert_eq!((&oldest["state"], &oldest["success"]), (&json!("cancelled"), &json!(false)), "{oldest}");
    assert_eq!(oldest["reason"], "cancelled by job 2, which takes its place");
    let (_, limits) = server.get("/api/limits?name=site").await;
    assert_eq!((&limits[1]["kind"], &limits[1]["waiting"]), (&json!("group"), &json!(1)), "{limits}");
    server.stop().await;
}

#[tokio::test]
async fn no_more_jobs_wait_than_the_definition_and_the_server_allow() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), Some("3")).await;
    for _ in 0..2 {
        let (head, job) = submit(&server, "narrow", "").await;
        assert!(head.starts_with("http/1.1 201"), "{job}");
    }
    let (head, problem) = submit(&server, "narrow", "").await;
    assert!(is_refused(&head, &problem, "too_many_queued"), "{head} {problem}");
    let (head, job) = submit(&server, "plain", "").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = submit(&server, "plain", "").await;
    assert!(is_refused(&head, &problem, "too_many_queued"), "{head} {problem}");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("--max-queued")), "{problem}");
    server.stop().await;
}
