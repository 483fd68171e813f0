//! A whole server that retries batches, over HTTP: members expire instead of failing, as no worker is there.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::RunningServer;

const JOBS: &str = "
jobs:
  brief: {image: busybox, queue_timeout: 1s}
  slow: {image: busybox}
  other: {image: busybox, queue_timeout: 1s}
  newest:
    image: busybox
    queue_timeout: 1s
    params: {tenant: {}}
    unique: {key: params.tenant, on_duplicate: replace}
";

async fn start(home: &Path) -> RunningServer {
    RunningServer::start(home, JOBS, |_| {}).await
}

async fn post(server: &RunningServer, path: &str, body: Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (head, answer) = server.ask("POST", path, &body).await;
    assert!(head.starts_with("http/1.1 20"), "{path}: {head} {answer}");
    answer
}

async fn retry(server: &RunningServer, batch: u64, query: &str, key: &str) -> (String, Value) {
    let headers: &[_] = if key.is_empty() { &[] } else { &[("idempotency-key", key)] };
    server.send("POST", &format!("/api/batches/{batch}/retry{query}"), headers, "").await
}

/// As [`retry`], again while another retry is under way for longer than the server lets a request wait.
async fn retry_when_free(server: &RunningServer, batch: u64) -> (String, Value) {
    for _ in 0..TURNS_MAX {
        let answer = retry(server, batch, "", "").await;
        if answer.1["code"] != "busy" {
            return answer;
        }
    }
    panic!("batches are being retried all the time");
}

/// Each turn waits for some seconds.
const TURNS_MAX: u32 = 20;

/// The batch once it has ended.
async fn ended(server: &RunningServer, batch: u64) -> Value {
    let (_, batch) = server.get(&format!("/api/batches/{batch}?wait=60s")).await;
    assert!(batch["ended_at"].is_string(), "{batch}");
    batch
}

async fn retried(server: &RunningServer, jobs: std::ops::Range<u64>) -> Vec<u64> {
    let mut found = Vec::new();
    for job in jobs {
        let (_, job) = server.get(&format!("/api/jobs/{job}")).await;
        found.push(job["retry_of"].as_u64().unwrap_or_default());
    }
    found
}

#[tokio::test]
async fn a_retry_is_a_batch_of_what_failed_and_of_what_that_stopped() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let list = json!([{"name": "brief", "delay": "1h", "labels": {"frame": "0"}}, {"name": "slow", "args": ["x"], "priority": 7},
        {"name": "slow"}, {"name": "slow"}]);
    post(&server, "/api/jobs?batch_name=film&max_failures=1&concurrency=2", list).await;
    post(&server, "/api/jobs/4/cancel", Value::Null).await;
    let (head, nothing) = retry(&server, 1, "", "").await;
    assert!(head.starts_with("http/1.1 200") && nothing.get("batch").is_none(), "{head} {nothing}");
    assert_eq!((&nothing["matched"], &nothing["refused"]), (&json!(0), &json!(0)), "{nothing}");
    let (head, _) = server.ask("PATCH", "/api/jobs/1", r#"{"delay":"0s"}"#).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let first = ended(&server, 1).await;
    assert_eq!((&first["counts"]["expired"], &first["counts"]["cancelled"]), (&json!(1), &json!(3)));

    let (_, counted) = retry(&server, 1, "?dry_run=1", "").await;
    assert_eq!((&counted["matched"], &counted["dry_run"]), (&json!(3), &json!(true)), "{counted}");
    let (head, made) = retry(&server, 1, "", "k").await;
    assert!(head.starts_with("http/1.1 201") && head.contains("location: /api/batches/5\r"), "{head} {made}");
    assert_eq!((&made["batch"], &made["count"], &made["retry_of"]), (&json!(5), &json!(3), &json!(1)));
    assert_eq!(retried(&server, 5..8).await, [1, 2, 3], "somebody cancelled the fourth");
    let (_, job) = server.get("/api/jobs/6").await;
    assert_eq!((&job["args"], &job["priority"], &job["batch"]), (&json!(["x"]), &json!(7), &json!(5)));
    assert_eq!(server.get("/api/jobs/5").await.1["labels"]["frame"], "0");
    let second = ended(&server, 5).await;
    assert_eq!((&second["name"], &second["retry_of"]), (&json!("film"), &json!(1)), "{second}");
    assert_eq!((&second["max_failures"], &second["concurrency"]), (&json!(1), &json!(2)), "{second}");
    assert_eq!(ended(&server, 1).await["retried_as"], 5);
    server.stop().await;

    let server = start(home.path()).await;
    let (head, again) = retry(&server, 1, "", "k").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("idempotent-replay: true\r"), "{head} {again}");
    assert_eq!((&again["batch"], &again["count"], &again["retry_of"]), (&json!(5), &json!(3), &json!(1)));
    let (_, other) = retry(&server, 1, "?concurrency=3", "k").await;
    assert_eq!(other["code"], "idempotency_mismatch", "{other}");
    let (_, third) = retry(&server, 1, "?max_failures=9&batch_name=again", "").await;
    assert_eq!((&third["batch"], &third["count"]), (&json!(8), &json!(3)), "{third}");
    assert_eq!(retried(&server, 8..11).await, [5, 6, 7], "the retries stand for the members");
    let (_, third) = server.get("/api/batches/8").await;
    assert_eq!((&third["name"], &third["max_failures"]), (&json!("again"), &json!(9)), "{third}");
    let (_, job) = server.get("/api/jobs/8?wait=60s").await;
    assert_eq!(job["state"], "expired");
    // The others have been retried, and wait.
    let (_, fourth) = retry(&server, 5, "", "").await;
    assert_eq!((&fourth["batch"], &fourth["count"]), (&json!(11), &json!(1)), "{fourth}");
    assert_eq!(retried(&server, 11..12).await, [8]);
    server.stop().await;
}

#[tokio::test]
async fn cancelled_members_are_counted_and_repeated_on_request() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    post(&server, "/api/jobs/slow", json!({"count": 4})).await;
    post(&server, "/api/jobs/2/cancel", Value::Null).await;
    let (_, counted) = retry(&server, 1, "?dry_run=1", "").await;
    let others =
        |answer: &Value| [&answer["matched"], &answer["cancelled"], &answer["unended"]].map(Value::as_u64);
    assert_eq!(others(&counted), [Some(0), Some(1), Some(3)], "{counted}");
    post(&server, "/api/batches/1/cancel", Value::Null).await;
    ended(&server, 1).await;
    let (head, nothing) = retry(&server, 1, "", "").await;
    assert!(head.starts_with("http/1.1 200") && nothing.get("batch").is_none(), "{head} {nothing}");
    assert_eq!(others(&nothing), [Some(0), Some(4), None], "{nothing}");
    let (_, made) = retry(&server, 1, "?cancelled=1", "").await;
    assert_eq!(
        (&made["batch"], &made["count"], made.get("cancelled")),
        (&json!(5), &json!(4), None),
        "{made}"
    );
    assert_eq!(retried(&server, 5..9).await, [1, 2, 3, 4]);
    server.stop().await;
}

#[tokio::test]
async fn members_come_after_one_another_again() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let list = json!([{"name": "slow", "as": "last", "after": ["next"]}, {"name": "slow", "as": "next", "after": ["first"]},
        {"name": "brief", "as": "first"}, {"name": "slow", "as": "own"}, {"name": "slow", "after": ["own"]}]);
    post(&server, "/api/jobs", list).await;
    post(&server, "/api/jobs/4/cancel", Value::Null).await;
    ended(&server, 1).await;
    let (_, made) = retry(&server, 1, "", "").await;
    assert_eq!((&made["batch"], &made["count"]), (&json!(6), &json!(3)), "{made}");
    assert_eq!(retried(&server, 6..9).await, [1, 2, 3], "the fourth was cancelled, and the fifth needs it");
    for (job, on) in [(6, 7), (7, 8)] {
        let (_, job) = server.get(&format!("/api/jobs/{job}")).await;
        assert_eq!(job["after"][0]["job"], on, "{job}");
    }
    server.stop().await;
}

#[tokio::test]
async fn members_that_cannot_be_made_again_are_refused_and_the_others_are_a_batch() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let list = json!([{"name": "brief"}, {"name": "other"}, {"name": "slow", "after": ["other"]}]);
    post(&server, "/api/jobs", list).await;
    ended(&server, 1).await;
    std::fs::write(home.path().join("jobs.yaml"), JOBS.replace("other:", "another:")).expect("a place");
    post(&server, "/api/definitions/reload", Value::Null).await;
    let (head, made) = retry(&server, 1, "", "").await;
    assert!(head.starts_with("http/1.1 201"), "{made}");
    assert_eq!((&made["count"], &made["refused"], &made["matched"]), (&json!(1), &json!(1), &json!(2)));
    assert_eq!(
        (&made["refusals"][0]["job"], &made["refusals"][0]["code"]),
        (&json!(2), &json!("unknown_job"))
    );
    ended(&server, 4).await;
    let (_, made) = retry(&server, 1, "?revision=original", "").await;
    assert_eq!(
        (&made["batch"], &made["count"], &made["refused"]),
        (&json!(5), &json!(3), &json!(0)),
        "{made}"
    );
    ended(&server, 5).await;
    std::fs::write(home.path().join("jobs.yaml"), "jobs: {slow: {image: busybox}}").expect("a place");
    post(&server, "/api/definitions/reload", Value::Null).await;
    let (head, none) = retry(&server, 1, "", "").await;
    assert!(head.starts_with("http/1.1 200") && none.get("batch").is_none(), "{head} {none}");
    assert_eq!((&none["matched"], &none["refused"]), (&json!(2), &json!(2)), "{none}");
    server.stop().await;
}

#[tokio::test]
async fn a_large_batch_is_retried_as_a_whole_and_once() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    post(&server, "/api/jobs/brief", json!({"count": 2_500, "max_failures": 2_500})).await;
    ended(&server, 1).await;
    // From now on they wait.
    std::fs::write(home.path().join("jobs.yaml"), JOBS.replace("queue_timeout: 1s", "priority: 1"))
        .expect("a place");
    post(&server, "/api/definitions/reload", Value::Null).await;
    // Without a key: the second one must see what the first one has made.
    let (one, two) = tokio::join!(retry_when_free(&server, 1), retry_when_free(&server, 1));
    let mut matched = [one.1["matched"].as_u64(), two.1["matched"].as_u64()];
    matched.sort_unstable();
    assert_eq!(matched, [Some(0), Some(2_500)], "{one:?} {two:?}");
    let (_, batches) = server.get("/api/batches").await;
    let batches: Vec<_> =
        batches.as_array().expect("a list").iter().map(|it| (&it["id"], &it["count"])).collect();
    assert_eq!(batches, [(&json!(2_501), &json!(2_500)), (&json!(1), &json!(2_500))]);
    assert_eq!(retried(&server, 2_501..2_504).await, [1, 2, 3]);
    assert_eq!(retried(&server, 5_000..5_001).await, [2_500]);
    server.stop().await;
}

#[tokio::test]
async fn a_member_whose_key_a_later_job_has_is_left_out_and_the_others_are_made() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path()).await;
    let tenants = json!({"each": [{"tenant": "a"}, {"tenant": "b"}, {"tenant": "c"}]});
    post(&server, "/api/jobs/newest", tenants).await;
    ended(&server, 1).await;
    post(&server, "/api/jobs/newest", json!({"params": {"tenant": "b"}, "delay": "1h"})).await;
    let (head, made) = retry(&server, 1, "", "").await;
    assert!(head.starts_with("http/1.1 201"), "{head} {made}");
    assert_eq!((&made["count"], &made["duplicates"]), (&json!(2), &json!(1)), "{made}");
    let (_, later) = server.get("/api/jobs/4").await;
    assert_eq!(later["state"], "scheduled", "{later}");
    // A batch of one member is a batch, too.
    let one = post(&server, "/api/jobs/newest", json!({"each": [{"tenant": "d"}]})).await;
    let batch = one["batch"].as_u64().expect("a batch");
    ended(&server, batch).await;
    post(&server, "/api/jobs/newest", json!({"params": {"tenant": "d"}, "delay": "1h"})).await;
    let (head, made) = retry(&server, batch, "", "").await;
    assert!(head.starts_with("http/1.1 200"), "{head} {made}");
    assert_eq!((&made["count"], &made["duplicates"]), (&json!(0), &json!(1)), "{made}");
    server.stop().await;
}
