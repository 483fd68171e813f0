//! Drain of a worker: the order survives a restart of the server, the deadline stops slow jobs, and uncordon undoes it.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::ProcessSpec;

use crate::support::{Cluster, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn drain_and_its_deadline_survive_a_server_kill() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    let drained = api.post("/api/workers/1/drain?deadline=2s", None).await;
    assert_eq!((&drained["state"], &drained["cordoned"]), (&json!("draining"), &json!(true)), "{drained}");
    assert!(drained["drain_deadline"].is_string(), "{drained}");
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let shown = api.wait_for_job(job, |job| job["state"] == "queued").await;
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["outcome"], &attempt["stopping"]),
        (&json!("interrupted"), &json!("drain")),
        "{shown}"
    );
    let status = worker.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", worker.log());
    api.wait_for_worker("first", |worker| worker["state"] == "drained").await;

    // The restarted worker gets no jobs and is not told to exit.
    let mut worker = cluster.start_worker("first", FAKE);
    let back = api.wait_for_ready_worker("first").await;
    assert_eq!((&back["cordoned"], &back["drain_deadline"]), (&json!(true), &Value::Null), "{back}");
    api.wait_for_job(job, |job| job["pending_reason"]["code"] == "cordoned").await;
    api.post("/api/workers/1/uncordon", None).await;
    let shown = api.wait_for_job(job, |job| job["state"] == "running").await;
    assert_eq!(shown["attempt_count"], 2, "{shown}");
    assert!(worker.is_running());
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    api.wait_until_all_ended().await;
    worker.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_can_be_undone_and_a_gone_worker_forgotten() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    api.post("/api/workers/1/drain", None).await;
    let waiting = api.post("/api/jobs/quick", None).await;
    assert_eq!(waiting["pending_reason"]["code"], "cordoned", "{waiting}");
    api.post("/api/workers/1/uncordon", None).await;
    api.wait_for_job(waiting["id"].as_u64().unwrap(), |job| job["state"] == "succeeded").await;
    assert_eq!(api.get(&format!("/api/jobs/{job}")).await["attempt_count"], 1);
    assert!(worker.is_running());

    api.post("/api/workers/1/drain", None).await;
    let refused = api.request(Method::POST, "/api/workers/1/forget", None, None).await.unwrap();
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("worker_connected")), "{refused:?}");
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let status = worker.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", worker.log());
    api.wait_for_worker("first", |worker| worker["state"] == "drained").await;
    api.post("/api/workers/1/forget", None).await;
    wait_until("it is forgotten", async || api.get("/api/workers?all=1").await == json!([])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_waits_for_the_end_of_a_drain_over_a_server_kill() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", &[FAKE, &["--label", "rack=7"]].concat());
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    let words = ["drain", "--label", "rack=7", "--yes", "--wait", "--server", &cluster.address()];
    let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let words = words.map(str::to_owned).to_vec();
    let mut drain = ProcessSpec::new(program, words, cluster.path("drain.log")).start();
    let waits_for = format!("first has 1 attempt: job {job} (long) running");
    wait_until("it names the job", async || drain.log().contains(&waits_for)).await;
    server.kill();
    wait_until("it notices", async || drain.log().contains("the connection broke")).await;
    let _server = cluster.start_server(&[]).await;
    api.wait_for_worker("first", |worker| worker["state"] == "draining").await;
    api.post(&format!("/api/jobs/{job}/cancel"), None).await;
    let status = drain.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", drain.log());
    assert!(drain.log().ends_with("worker first (id 1) has no attempt left\n"), "{}", drain.log());
    assert_eq!(api.get("/api/workers/1").await["state"], "drained");
    assert!(worker.wait_for_exit().await.success());
}

const FAKE: &[&str] = &["--no-docker", "--allow-fake", "--slots", "2", "--on-term", "interrupt"];
const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake }
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
