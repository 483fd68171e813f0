//! Waits with a limit, by the real program: `queue_timeout`, `quarantine_timeout` and `on_lost_timeout`.

use serde_json::json;
use testkit::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_worker_takes_in_time_expires_also_over_a_restart() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let short = api.post("/api/jobs/short", None).await["id"].as_u64().unwrap();
    let long = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    let plain = api.post("/api/jobs/plain", None).await["id"].as_u64().unwrap();
    let shown = api.get(&format!("/api/jobs/{long}")).await;
    let deadline = shown["expires_at"].clone();
    assert!(deadline.is_string(), "{shown}");
    let ended = api.wait_for_job(short, |job| job["state"] == "expired").await;
    assert_eq!(ended["reason"], "it did not start within its queue_timeout", "{ended}");
    assert!(ended["expires_at"].is_null() && ended["outcome"].is_null(), "{ended}");

    server.kill();
    let _server = cluster.start_server(&[]).await;
    let shown = api.get(&format!("/api/jobs/{long}")).await;
    assert_eq!((&shown["state"], &shown["expires_at"]), (&json!("queued"), &deadline), "{shown}");
    assert!(api.get(&format!("/api/jobs/{plain}")).await["expires_at"].is_null());
    let listed = api.get("/api/jobs?state=expired").await;
    assert_eq!(listed[0]["id"], short, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_a_backlog_expires_and_a_running_one_does_not() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let _worker =
        cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "1", "--backlog", "4"]);
    api.wait_for_ready_worker("only").await;
    let runs = api.post("/api/jobs/sleeper", None).await["id"].as_u64().unwrap();
    api.wait_for_job(runs, |job| job["state"] == "running").await;
    let behind = api.post("/api/jobs/sleeper", None).await["id"].as_u64().unwrap();
    let ended = api.wait_for_job(behind, |job| job["state"] == "expired").await;
    assert_eq!(ended["outcome"], "released", "its worker gave it back: {ended}");
    let shown = api.get(&format!("/api/jobs/{runs}")).await;
    assert_eq!((&shown["state"], shown["expires_at"].is_null()), (&json!("running"), true), "{shown}");
    let (_, text) = cluster.run_cli(&["show", "--server", &cluster.address(), &behind.to_string()]);
    assert!(text.contains("expired") && text.contains("queue_timeout"), "{text}");
    api.post(&format!("/api/jobs/{runs}/cancel"), None).await;
}

const JOBS: &str = "\
version: 1
jobs:
  short: { image: busybox, queue_timeout: 1s }
  long: { image: busybox, queue_timeout: 1h }
  plain: { image: busybox }
  sleeper: { runtime: process, command: [sleep, '300'], queue_timeout: 2s, stop_grace_period: 1s }
";
