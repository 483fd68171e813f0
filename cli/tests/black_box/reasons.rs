//! The reason that a job shows, by the real program: of an end for another job, and of a wait for one of several limits.

use serde_json::{Value, json};
use testkit::{Api, Cluster, Process};

const JOBS: &str = r#"
version: 1
defaults: { runtime: process, stop_grace_period: 1s }
jobs:
  newest: { command: [sleep, "3600"], concurrency: { limit: 1, on_full: cancel_oldest } }
  paced: { command: ["true"], concurrency: 1, rate_limit: { limit: 1, per: 1h } }
  calls: { command: [sleep, "3600"], rate_limit: { limit: 100, per: 1h, burst: 100 } }
  everywhere: { command: [sleep, "3600"], run_on: all }
"#;

async fn start(jobs: &str) -> (Cluster, Api, [Process; 2]) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let (server, api) = (cluster.start_server(&[]).await, cluster.api());
    let worker =
        cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "3", "--backlog", "0"]);
    api.wait_for_ready_worker("w1").await;
    (cluster, api, [server, worker])
}

async fn submit(api: &Api, name: &str) -> u64 {
    api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().expect("a number")
}

fn said_in(job: &Value, event: &str) -> Value {
    let events = job["timeline"].as_array().expect("a list");
    events.iter().find(|it| it["event"] == event).map_or(Value::Null, |it| it["text"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_that_ends_for_another_one_names_it() {
    let (cluster, api, _running) = start(JOBS).await;
    let first = submit(&api, "newest").await;
    api.wait_for_job(first, |job| job["state"] == "running").await;
    let second = submit(&api, "newest").await;
    let ended = api.wait_for_job(first, |job| job["state"] == "cancelled").await;
    assert_eq!(
        ended["reason"],
        json!(format!("cancelled by job {second}, which takes its place")),
        "{ended}"
    );
    let request = format!("by job {second}, which takes its place");
    assert_eq!(said_in(&ended, "cancel_requested"), json!(request), "{ended}");
    let (_, why) = cluster.run_cli(&["explain", &first.to_string(), "--server", &cluster.address()]);
    assert!(why.contains(&format!("was cancelled {request}")), "{why}");

    let parent = submit(&api, "everywhere").await;
    let members = format!("/api/jobs?member_of={parent}&state=running");
    testkit::wait_until("its member runs", async || {
        api.get(&members).await.as_array().is_some_and(|list| list.len() == 1)
    })
    .await;
    let member = api.get(&members).await[0]["id"].as_u64().expect("a number");
    api.post(&format!("/api/jobs/{parent}/cancel"), None).await;
    let ended = api.wait_for_job(member, |job| job["state"] == "cancelled").await;
    assert_eq!(ended["reason"], json!(format!("cancelled by its parent, job {parent}")), "{ended}");
    assert_eq!(said_in(&ended, "cancel_requested"), json!(format!("by its parent, job {parent}")), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_names_the_one_of_its_limits_that_has_no_room() {
    let (_cluster, api, _running) = start(JOBS).await;
    let code = |job: &Value| job["pending_reason"]["code"].clone();
    let first = submit(&api, "paced").await;
    api.wait_for_job(first, |job| job["state"] == "succeeded").await;
    // The permit is free again, and the rate allows no start within the hour.
    let second = submit(&api, "paced").await;
    api.wait_for_job(second, |job| code(job) == "rate_limit").await;
    let why = api.get(&format!("/api/jobs/{second}/explain")).await;
    assert_eq!(why["reason"]["code"], "rate_limit", "{why}");

    let batch = api.post("/api/jobs/calls", Some(&json!({ "count": 3, "concurrency": 1 }))).await;
    let last = batch["last"].as_u64().expect("a number");
    api.wait_for_job(last, |job| code(job) == "limit").await;
    let why = api.get(&format!("/api/jobs/{last}/explain")).await;
    assert_eq!(why["reason"]["code"], "limit", "{why}");
    let waiting = api.get("/api/definitions/calls").await["waiting"].clone();
    assert_eq!(
        (waiting[0]["code"].as_str(), waiting[0]["count"].as_u64()),
        (Some("limit"), Some(2)),
        "{waiting}"
    );
}
