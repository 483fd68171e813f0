//! A worker is drained: the order outlives the server, a deadline ends what takes too long, and an uncordon takes it back.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Stage, holds};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_a_kill_of_the_server_and_its_deadline_is_kept() {
    let stage = Stage::new(JOBS);
    let mut server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.job(job, |job| job["state"] == "running").await;
    let drained = api.post("/api/workers/1/drain?deadline=2s", None).await;
    assert_eq!((&drained["state"], &drained["cordoned"]), (&json!("draining"), &json!(true)), "{drained}");
    assert!(drained["drain_deadline"].is_string(), "{drained}");
    server.kill();
    let _server = stage.server(&[]).await;
    let shown = api.job(job, |job| job["state"] == "queued").await;
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["outcome"], &attempt["stopping"]),
        (&json!("interrupted"), &json!("drain")),
        "{shown}"
    );
    let status = worker.ended().await;
    assert!(status.success(), "{status}:\n{}", worker.said());
    api.worker("first", |worker| worker["state"] == "drained").await;

    // What its machine starts again takes nothing, and is not told to leave.
    let mut worker = stage.worker("first", FAKE);
    let back = api.worker_ready("first").await;
    assert_eq!((&back["cordoned"], &back["drain_deadline"]), (&json!(true), &Value::Null), "{back}");
    api.job(job, |job| job["pending_reason"]["code"] == "cordoned").await;
    api.post("/api/workers/1/uncordon", None).await;
    let shown = api.job(job, |job| job["state"] == "running").await;
    assert_eq!(shown["attempt_count"], 2, "{shown}");
    assert!(worker.is_alive());
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    api.all_ended().await;
    worker.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_can_be_taken_back_and_who_has_left_can_be_forgotten() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.job(job, |job| job["state"] == "running").await;
    api.post("/api/workers/1/drain", None).await;
    let waiting = api.post("/api/jobs/quick", None).await;
    assert_eq!(waiting["pending_reason"]["code"], "cordoned", "{waiting}");
    api.post("/api/workers/1/uncordon", None).await;
    api.job(waiting["id"].as_u64().unwrap(), |job| job["state"] == "succeeded").await;
    assert_eq!(api.get(&format!("/api/jobs/{job}")).await["attempt_count"], 1);
    assert!(worker.is_alive());

    api.post("/api/workers/1/drain", None).await;
    let refused = api.ask(Method::POST, "/api/workers/1/forget", None, None).await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("worker_connected")), "{refused:?}");
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let status = worker.ended().await;
    assert!(status.success(), "{status}:\n{}", worker.said());
    api.worker("first", |worker| worker["state"] == "drained").await;
    api.post("/api/workers/1/forget", None).await;
    holds("it is forgotten", async || api.get("/api/workers?all=1").await == json!([])).await;
}

const FAKE: &[&str] = &["--no-docker", "--allow-fake", "--slots", "2", "--on-term", "interrupt"];
const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
