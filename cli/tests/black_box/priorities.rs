//! Priorities with real processes: a job of a higher priority that takes free slots only goes before jobs that wait in a backlog.

use std::path::Path;

use serde_json::Value;
use testkit::Cluster;

const JOBS: &str = "version: 1
defaults:
  runtime: process
  environment: { GATE: '' }
  command: [sh, -c, 'until [ -e \"$GATE\" ]; do sleep 0.01; done']
jobs:
  long: {}
  urgent: { priority: 9, concurrency: 1 }
";

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_job_with_a_limit_starts_before_the_backlog_of_its_worker() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let flags = ["--no-docker", "--allow-process", "--slots", "1", "--backlog", "2"];
    let _worker = cluster.start_worker("w1", &flags);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let submit = async |name: &str, gate: &Path| {
        let body = serde_json::json!({ "environment": { "GATE": gate } });
        api.post(&format!("/api/jobs/{name}"), Some(&body)).await["id"].as_u64().unwrap()
    };
    let gates = ["first", "urgent", "last"].map(|name| cluster.path(name));
    let first = submit("long", &gates[0]).await;
    api.wait_for_job(first, |job| job["state"] == "running").await;
    let waiting = [submit("long", &gates[2]).await, submit("long", &gates[2]).await];
    for id in waiting {
        api.wait_for_job(id, |job| job["state"] == "assigned").await;
    }

    let urgent = submit("urgent", &gates[1]).await;
    let is_given_back = |job: &Value| job["state"] == "queued" && job["attempts"][0]["outcome"] == "released";
    for id in waiting {
        api.wait_for_job(id, is_given_back).await;
    }
    std::fs::write(&gates[0], "").unwrap();
    api.wait_for_job(urgent, |job| job["state"] == "running").await;
    for id in waiting {
        let job = api.get(&format!("/api/jobs/{id}")).await;
        assert!(job["started_at"].is_null(), "{job}");
    }
    for gate in &gates[1..] {
        std::fs::write(gate, "").unwrap();
    }
    for id in [urgent].into_iter().chain(waiting) {
        api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }
}
