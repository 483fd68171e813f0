//! The reason that a job shows, by the real program: of an end for another job.

use serde_json::{Value, json};
use testkit::{Api, Cluster, Process};

const JOBS: &str = r#"
version: 1
defaults: { runtime: process, stop_grace_period: 1s }
jobs:
  newest: { command: [sleep, "3600"], concurrency: { limit: 1, on_full: cancel_oldest } }
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
    assert_eq!(ended["reason"], json!(format!("cancelled by job {second}, which takes its place")), "{ended}");
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
