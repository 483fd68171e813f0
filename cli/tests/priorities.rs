//! Priorities with real processes: a job of a higher priority that takes free slots only goes before jobs that wait in a backlog.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use serde_json::Value;
use testkit::Cluster;

const JOBS: &str = "version: 1
jobs:
  long: { runtime: process, environment: { GATE: '' }, command: [sh, -c, 'until [ -e \"$GATE\" ]; do sleep 0.01; done'] }
  urgent: { runtime: process, command: ['true'], priority: 9, concurrency: 1 }
";

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_job_with_a_limit_starts_before_the_backlog_of_its_worker() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let flags = ["--no-docker", "--allow-process", "--slots", "1", "--backlog", "2"];
    let _worker = cluster.start_worker("w1", &flags);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let (first_gate, gate) = (cluster.path("first"), cluster.path("gate"));
    let submit = async |gate: &std::path::Path| {
        let body = serde_json::json!({ "environment": { "GATE": gate } });
        api.post("/api/jobs/long", Some(&body)).await["id"].as_u64().unwrap()
    };
    let first = submit(&first_gate).await;
    api.wait_for_job(first, |job| job["state"] == "running").await;
    let waiting = [submit(&gate).await, submit(&gate).await];
    for id in waiting {
        api.wait_for_job(id, |job| job["state"] == "assigned").await;
    }

    let urgent = api.post("/api/jobs/urgent", None).await["id"].as_u64().unwrap();
    let is_given_back = |job: &Value| job["state"] == "queued" && job["attempts"][0]["outcome"] == "released";
    for id in waiting {
        api.wait_for_job(id, is_given_back).await;
    }
    std::fs::write(first_gate, "").unwrap();
    let urgent = api.wait_for_job(urgent, |job| job["state"] == "succeeded").await;
    std::fs::write(gate, "").unwrap();
    for id in waiting {
        let later = api.wait_for_job(id, |job| job["state"] == "succeeded").await;
        assert!(later["started_at"].as_str() >= urgent["ended_at"].as_str(), "{urgent} {later}");
    }
}
