//! A whole server with batches, over HTTP: arrays, lists of parameters, names, counts, pages, cancel and refusals.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::RunningServer;

const JOBS: &str = "
jobs:
  resize:
    image: busybox
    params: {size: {type: integer, default: 1}, color: {enum: [red, blue], default: red}}
";

async fn submit(server: &RunningServer, body: Value) -> (String, Value) {
    server.ask("POST", "/api/jobs/resize", &body.to_string()).await
}

async fn start(home: &Path) -> RunningServer {
    RunningServer::start(home, JOBS, |_| {}).await
}

#[tokio::test]
async fn an_array_is_one_batch_that_counts_its_members_and_outlives_a_restart() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let (head, made) =
        submit(&server, json!({"count": 3, "batch_name": "nightly", "max_failures": 2, "concurrency": 1}))
            .await;
    assert!(head.starts_with("http/1.1 201") && head.contains("location: /api/batches/1\r"), "{head} {made}");
    assert_eq!((&made["batch"], &made["count"], &made["last"]), (&json!(1), &json!(3), &json!(3)));
    let (head, _) = server.ask("POST", "/api/jobs/2/cancel", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    server.stop().await;

    let server = start(home.path()).await;
    let (_, batch) = server.get("/api/batches/1").await;
    assert_eq!((&batch["name"], &batch["state"]), (&json!("nightly"), &json!("running")), "{batch}");
    assert_eq!((&batch["counts"]["queued"], &batch["counts"]["cancelled"]), (&json!(2), &json!(1)));
    assert_eq!((&batch["max_failures"], &batch["progress"]), (&json!(2), &json!(1.0 / 3.0)));
    assert_eq!(batch["concurrency"], 1, "{batch}");
    assert!(batch["eta"].is_string() && batch.get("ended_at").is_none(), "{batch}");
    let (_, jobs) = server.get("/api/jobs?batch=1&state=queued").await;
    assert_eq!(jobs.as_array().map(Vec::len), Some(2));

    let (_, counted) = server.ask("POST", "/api/batches/1/cancel?dry_run=1", "").await;
    assert_eq!((&counted["matched"], &counted["done"]), (&json!(2), &json!(0)), "{counted}");
    let (waited, cancelled) =
        tokio::join!(server.get("/api/batches/1?wait=60s"), server.ask("POST", "/api/batches/1/cancel", ""));
    assert_eq!((&cancelled.1["matched"], &cancelled.1["done"]), (&json!(2), &json!(2)), "{}", cancelled.1);
    let ended = waited.1;
    assert_eq!((&ended["state"], &ended["progress"]), (&json!("cancelled"), &json!(1.0)), "{ended}");
    assert!(ended["ended_at"].is_string() && ended.get("eta").is_none(), "{ended}");
    assert!(ended["cancelled_at"].is_string() && ended["cancelled_by"] == "http 127.0.0.1", "{ended}");
    let (head, again) = server.ask("POST", "/api/batches/1/cancel", "").await;
    assert!(head.starts_with("http/1.1 200") && again["matched"] == 0, "all have ended: {again}");
    server.stop().await;
}

#[tokio::test]
async fn each_entry_of_a_list_is_a_job_with_its_own_parameters() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let each = json!({"params": {"color": "blue"}, "each": [{"size": 5}, {"size": 6, "color": "red"}]});
    let (head, made) = submit(&server, each).await;
    assert!(head.starts_with("http/1.1 201"), "{made}");
    for (job, size, color) in [(1, 5, "blue"), (2, 6, "red")] {
        let (_, found) = server.get(&format!("/api/jobs/{job}")).await;
        assert_eq!(found["batch"], 1);
        assert_eq!((&found["params"]["size"], &found["params"]["color"]), (&json!(size), &json!(color)));
    }
    let (_, problem) = submit(&server, json!({"each": [{"size": 5}, {"size": "x"}]})).await;
    assert_eq!(
        (&problem["code"], &problem["field"]),
        (&json!("invalid_param"), &json!("each[1].params.size"))
    );
    let lines = "{\"name\":\"resize\"}\n";
    let path = "/api/jobs?batch_name=from%20lines&max_failures=5";
    let (head, made) = server.ask("POST", path, &format!("[{}]", lines.trim())).await;
    assert!(head.starts_with("http/1.1 201"), "{made}");
    let (_, batch) = server.get(&format!("/api/batches/{}", made["batch"])).await;
    assert_eq!((&batch["name"], &batch["max_failures"]), (&json!("from lines"), &json!(5)), "{batch}");
    server.stop().await;
}

#[tokio::test]
async fn batches_are_listed_in_pages() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    for name in ["a", "b", "a"] {
        submit(&server, json!({"count": 1, "batch_name": name})).await;
    }
    let ids = |list: &Value| {
        let list = list.as_array().expect("a list");
        list.iter().filter_map(|batch| batch["id"].as_u64()).collect::<Vec<_>>()
    };
    let (head, page) = server.get("/api/batches?limit=2").await;
    assert_eq!(ids(&page), [3, 2]);
    let link = head.lines().find_map(|line| line.strip_prefix("link: <")).expect("a next page");
    // The head was made lower case, and a cursor has capitals: the path is what counts here.
    assert!(link.starts_with("/api/batches?limit=2&cursor="), "{link}");
    assert_eq!(ids(&server.get("/api/batches?name=a&state=waiting,failed").await.1), [3, 1]);
    assert_eq!(ids(&server.get("/api/batches?state=succeeded").await.1), Vec::<u64>::new());
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_cannot_be_made_or_found_is_refused() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let long = "x".repeat(257);
    for (body, status, code, field) in [
        (json!({"count": 0}), 422, "out_of_range", "count"),
        (json!({"count": 100_001}), 422, "out_of_range", "count"),
        (json!({"count": -1}), 422, "out_of_range", "count"),
        (json!({"count": "3"}), 422, "invalid_type", "count"),
        (json!({"count": 2, "each": [{}]}), 422, "invalid_batch", "each"),
        (json!({"each": []}), 422, "empty_batch", "each"),
        (json!({"each": [1]}), 422, "invalid_type", "each"),
        (json!({"batch_name": "x"}), 422, "invalid_batch", "batch_name"),
        (json!({"max_failures": 3}), 422, "invalid_batch", "max_failures"),
        (json!({"count": 2, "batch_name": ""}), 422, "invalid_batch", "batch_name"),
        (json!({"count": 2, "batch_name": long}), 422, "invalid_batch", "batch_name"),
        (json!({"count": 2, "max_failures": 0}), 422, "out_of_range", "max_failures"),
    ] {
        let (head, problem) = submit(&server, body.clone()).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{body}: {problem}");
        assert_eq!((&problem["code"], &problem["field"]), (&json!(code), &json!(field)), "{body}: {problem}");
    }
    for (method, path, code) in [
        ("GET", "/api/batches/1", "batch_not_found"),
        ("GET", "/api/batches/1?wait=1s", "batch_not_found"),
        ("POST", "/api/batches/1/cancel", "batch_not_found"),
        ("POST", "/api/batches/1/release", "not_found"),
        ("GET", "/api/batches/x", "invalid_id"),
        ("GET", "/api/batches?state=lost", "invalid_state"),
        ("GET", "/api/batches?limit=0", "invalid_limit"),
        ("GET", "/api/batches?nmae=x", "invalid_query"),
        ("POST", "/api/jobs?max_failures=0", "out_of_range"),
    ] {
        let body = if path.starts_with("/api/jobs") { "[{\"name\":\"resize\"}]" } else { "" };
        let (_, problem) = server.ask(method, path, body).await;
        assert_eq!(problem["code"], code, "{method} {path}: {problem}");
    }
    let (_, problem) = server.ask("POST", "/api/jobs/resize?wait=1s", "{\"count\":2}").await;
    assert_eq!(
        (&problem["code"], &problem["field"]),
        (&json!("invalid_query"), &json!("?wait")),
        "{problem}"
    );
    let (_, problem) = server.ask("POST", "/api/jobs", "[{\"name\":\"resize\",\"count\":2}]").await;
    assert_eq!(problem["code"], "unknown_field", "{problem}");
    let (_, jobs) = server.get("/api/jobs").await;
    assert_eq!(jobs, json!([]), "all or nothing");
    server.stop().await;
}
