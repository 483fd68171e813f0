//! A whole server with unique keys, over HTTP: duplicates are answered with the job that has the key, also after a restart.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::RunningServer;

const JOBS: &str = "
jobs:
  same: {image: busybox, unique: {}}
  tenant: {image: busybox, unique: {key: params.tenant}, params: {tenant: {type: string, default: acme}}}
  refused: {image: busybox, unique: {key: labels.tenant, on_duplicate: reject}}
  newest: {image: busybox, unique: {key: all, on_duplicate: replace}}
  plain: {image: busybox}
  hourly: {image: busybox, unique: {}, schedule: {every: 1h}}
";

async fn submit(server: &RunningServer, name: &str, body: Value) -> (String, Value) {
    server.ask("POST", &format!("/api/jobs/{name}"), &body.to_string()).await
}

async fn start(home: &Path) -> RunningServer {
    RunningServer::start(home, JOBS, |_| {}).await
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
    let server = start(home.path()).await;
    assert_made(&submit(&server, "same", json!({"args": ["a"]})).await, 1);
    assert_duplicate(&submit(&server, "same", json!({"args": ["a"], "priority": 3})).await, 1);
    assert_made(&submit(&server, "same", json!({"args": ["b"]})).await, 2);
    assert_made(&submit(&server, "tenant", json!({})).await, 3);
    assert_duplicate(&submit(&server, "tenant", json!({"params": {"tenant": "acme"}})).await, 3);
    assert_duplicate(
        &submit(&server, "tenant", json!({"unique_key": "acme", "params": {"tenant": "b"}})).await,
        3,
    );
    server.stop().await;

    let server = start(home.path()).await;
    assert_duplicate(&submit(&server, "same", json!({"args": ["a"]})).await, 1);
    assert_duplicate(&submit(&server, "tenant", json!({})).await, 3);
    let (head, _) = server.ask("POST", "/api/jobs/3/cancel", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_made(&submit(&server, "tenant", json!({})).await, 4);
    let (head, problem) = submit(&server, "plain", json!({"unique_key": "a"})).await;
    assert!(head.starts_with("http/1.1 422"), "{head}");
    assert_eq!((&problem["code"], &problem["field"]), (&json!("override_not_allowed"), &json!("unique_key")));
    let (head, problem) = submit(&server, "same", json!({"unique_key": ""})).await;
    assert!(head.starts_with("http/1.1 422") && problem["field"] == "unique_key", "{head} {problem}");
    server.stop().await;
}

#[tokio::test]
async fn a_refused_duplicate_names_the_job_that_has_the_key() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let acme = || json!({"labels": {"tenant": "acme"}});
    assert_made(&submit(&server, "refused", acme()).await, 1);
    let (head, problem) = submit(&server, "refused", acme()).await;
    assert!(head.starts_with("http/1.1 409"), "{head}");
    assert_eq!((&problem["code"], &problem["job"]), (&json!("duplicate_job"), &json!(1)), "{problem}");
    let twice = json!([{"name": "refused"}, {"name": "plain"}, {"name": "refused"}]).to_string();
    let (head, problem) = server.ask("POST", "/api/jobs", &twice).await;
    assert!(head.starts_with("http/1.1 409"), "{head}");
    assert_eq!((&problem["code"], &problem["job"]), (&json!("duplicate_job"), &Value::Null), "{problem}");
    let (_, shown) = server.get("/api/definitions/refused").await;
    let rule = json!({"key": "labels.tenant", "on_duplicate": "reject", "clear": ["success", "failed"]});
    assert_eq!(shown["unique"], rule, "{shown}");
    server.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_is_replaced_and_its_retry_does_not_replace_the_newer_one() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    assert_made(&submit(&server, "newest", json!({})).await, 1);
    assert_made(&submit(&server, "newest", json!({})).await, 2);
    let (_, first) = server.get("/api/jobs/1").await;
    assert_eq!(first["reason"], "cancelled by job 2, which replaces it", "{first}");
    let (head, problem) = server.ask("POST", "/api/jobs/1/retry", "").await;
    assert!(head.starts_with("http/1.1 409"), "{head}");
    assert_eq!((&problem["code"], &problem["job"]), (&json!("duplicate_job"), &json!(2)), "{problem}");
    let (head, result) = server.ask("POST", "/api/jobs/retry?name=newest&state=cancelled", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head} {result}");
    assert_eq!((&result["matched"], &result["refused"]), (&json!(1), &json!(1)), "{result}");
    let (_, second) = server.get("/api/jobs/2").await;
    assert_eq!(second["state"], "queued", "{second}");
    server.ask("POST", "/api/jobs/2/cancel", "").await;
    assert_made(&server.ask("POST", "/api/jobs/1/retry", "").await, 3);
    server.stop().await;
}

#[tokio::test]
async fn members_of_a_batch_that_are_duplicates_are_left_out_and_counted() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let each = |tenants: &[&str]| json!({"each": tenants.iter().map(|tenant| json!({"tenant": tenant})).collect::<Vec<_>>()});
    let (head, batch) = submit(&server, "tenant", each(&["a", "b", "a"])).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    assert_eq!((&batch["count"], &batch["duplicates"]), (&json!(2), &json!(1)), "{batch}");
    let (head, batch) = submit(&server, "tenant", each(&["b", "c"])).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    assert_eq!((&batch["first"], &batch["count"], &batch["duplicates"]), (&json!(3), &json!(1), &json!(1)));
    let (head, batch) = submit(&server, "tenant", each(&["c", "a"])).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("\nunique-duplicate: true\r"), "{head}");
    assert_eq!(batch, json!({ "count": 0, "duplicates": 2, "duplicate_of": 3 }), "there is no batch");
    let (head, problem) = submit(&server, "tenant", json!({"count": 100_000})).await;
    assert!(head.starts_with("http/1.1 422") && problem["code"] == "unique_batch", "{head} {problem}");
    server.stop().await;
}

#[tokio::test]
async fn a_backfill_is_refused_and_the_remedy_is_possible() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    for dry_run in ["", "&dry_run=1"] {
        let path = format!("/api/definitions/hourly/backfill?from=2020-01-01T00:00:00Z{dry_run}");
        let (head, problem) = server.ask("POST", &path, "").await;
        assert!(head.starts_with("http/1.1 422") && problem["code"] == "unique_batch", "{head} {problem}");
        assert_eq!(problem["detail"], "definitions with \"unique\" cannot be backfilled");
        assert_eq!(problem["hint"], "submit the jobs one by one");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_list_with_an_order_of_its_own_is_refused_whole_for_a_duplicate() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let post = async |list: Value| server.ask("POST", "/api/jobs", &list.to_string()).await;
    let (head, batch) = post(json!([{"name": "same"}, {"name": "same"}, {"name": "plain"}])).await;
    assert!(head.starts_with("http/1.1 201"), "{head} {batch}");
    assert_eq!((&batch["count"], &batch["duplicates"]), (&json!(2), &json!(1)), "{batch}");
    server.ask("POST", "/api/jobs/1/cancel", "").await;
    let named =
        json!([{"name": "same", "as": "x"}, {"name": "same", "as": "y"}, {"name": "plain", "after": ["x"]}]);
    let (head, problem) = post(named).await;
    assert!(head.starts_with("http/1.1 409") && problem["code"] == "duplicate_job", "{head} {problem}");
    let (head, _) = server.get("/api/jobs/3").await;
    assert!(head.starts_with("http/1.1 404"), "nothing was made: {head}");
    server.stop().await;
}
