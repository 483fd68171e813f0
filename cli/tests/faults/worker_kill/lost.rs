//! A worker that is silent for longer than its lease: a frozen one keeps its job, an absent one loses it, and its late report is recorded
//! and ignored.

use rustix::process::Signal;
use serde_json::json;

use crate::support::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_resumes_within_its_lease_keeps_its_job() {
    let cluster = Cluster::new(&jobs());
    let _server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", FLAGS);
    let job =
        api.post("/api/jobs/count", Some(&json!({ "environment": { "END": cluster.path("end") } }))).await;
    let job = job["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    worker.signal(Signal::STOP);
    let shown = api.wait_for_job(job, |job| job["worker_unreachable_since"].is_string()).await;
    assert_eq!(shown["state"], "running", "nothing is concluded from silence yet: {shown}");
    let waits_for = &shown["pending_reason"];
    assert_eq!(waits_for["code"], "worker_unreachable", "{shown}");
    let text = waits_for["text"].as_str().unwrap();
    assert!(text.contains("its attempt is given up, and the job is tried again"), "{text}");
    api.wait_for_worker("first", |worker| worker["state"] == "unreachable").await;
    worker.signal(Signal::CONT);
    let shown = api.wait_for_job(job, |job| job["worker_unreachable_since"].is_null()).await;
    assert_eq!(shown["state"], "running", "{shown}");
    std::fs::write(cluster.path("end"), "").unwrap();
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(
        (shown["attempt_count"].as_u64(), &shown["worker"]["name"]),
        (Some(1), &json!("first")),
        "{shown}"
    );
    worker.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_report_of_a_lost_worker_is_ignored() {
    let cluster = Cluster::new(&jobs());
    let _server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let mut first = cluster.start_worker("first", FLAGS);
    let job =
        api.post("/api/jobs/count", Some(&json!({ "environment": { "END": cluster.path("end") } }))).await;
    let job = job["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    first.kill();
    std::fs::write(cluster.path("end"), "").unwrap();
    let mut second = cluster.start_worker("second", FLAGS);
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let attempts = shown["attempts"].as_array().unwrap();
    let told: Vec<_> = attempts.iter().map(|it| (&it["worker"]["name"], &it["outcome"])).collect();
    assert_eq!(told, [(&json!("first"), &json!("lost")), (&json!("second"), &json!("succeeded"))], "{shown}");
    let mut first = cluster.start_worker("first", FLAGS);
    let shown = api.wait_for_job(job, |job| !job["late_reports"].as_array().unwrap().is_empty()).await;
    assert_eq!((&shown["state"], shown["attempt_count"].as_u64()), (&json!("succeeded"), Some(2)), "{shown}");
    let late = shown["late_reports"].as_array().unwrap();
    let fence = &attempts[0]["fence"];
    let from_first = json!({ "id": 1, "name": "first" });
    assert!(late.iter().all(|it| it["worker"] == from_first && &it["fence"] == fence), "{shown}");
    assert!(late.iter().any(|it| it["said"] == "succeeded" && it["attempt"] == 1), "{shown}");
    let told: Vec<_> = shown["timeline"].as_array().unwrap().iter().map(|it| &it["event"]).collect();
    assert!(told.contains(&&json!("late_report")), "{shown}");
    assert_eq!(attempts[0]["ran_ms"], json!(null), "nobody knows how long it ran: {shown}");
    first.terminate().await;
    second.terminate().await;
}

/// The shortest lease that the server accepts.
const QUICK_LEASE: &[&str] = &["--heartbeat", "1s", "--lease", "10s"];
const FLAGS: &[&str] = &["--no-docker", "--allow-process", "--on-term", "drain"];
/// The jobs end with this process if it is killed before it cleans up.
fn jobs() -> String {
    JOBS.replace("TEST", &std::process::id().to_string())
}

const JOBS: &str = "\
version: 1
jobs:
  count:
    runtime: process
    command: [sh, -c, 'until [ -e \"$$END\" ] || [ ! -d /proc/TEST ]; do sleep 0.1; done']
    stop_grace_period: 5s
    lost_after: 30s
";
