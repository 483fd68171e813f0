//! Two workers with copies of one state directory, and a worker with an older state directory.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Cluster, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn workers_with_a_cloned_identity_are_refused_until_one_is_left() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    let mut first = cluster.start_worker("first", FLAGS);
    let job =
        api.post("/api/jobs/count", Some(&json!({ "environment": { "END": cluster.path("end") } }))).await;
    let job = job["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;

    copy(&cluster.path("first"), &cluster.path("copy"));
    let mut second = cluster.start_worker("copy", FLAGS);
    let shown = api.wait_for_worker("first", |worker| worker["state"] == "cloned").await;
    assert_eq!(
        (&shown["connected"], shown["copies"].as_array().map(Vec::len)),
        (&json!(false), Some(2)),
        "{shown}"
    );
    let shown = api.wait_for_job(job, |job| job["worker_unreachable_since"].is_string()).await;
    assert_eq!(shown["state"], "running", "nothing is concluded yet: {shown}");
    let (code, said) = cluster.run_cli(&["workers", "--server", &cluster.address()]);
    assert!(code == 0 && said.contains("several processes use the identity of first"), "{said}");
    assert!(server.log().contains("one state directory is a copy of the other"), "{}", server.log());
    wait_for("both know why they are refused", async || {
        let both = [&first, &second].map(|worker| worker.log().contains("remove its state directory"));
        (both == [true, true]).then_some(())
    })
    .await;
    assert!(first.is_running() && second.is_running(), "a refused worker keeps trying");

    second.kill();
    let shown = api.wait_for_worker("first", |worker| worker["state"] == "ready").await;
    assert_eq!((&shown["id"], &shown["busy"]), (&json!(1), &json!(1)), "{shown}");
    std::fs::write(cluster.path("end"), "").unwrap();
    let shown = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(shown["attempt_count"], 1, "{shown}");

    std::fs::remove_dir_all(cluster.path("copy")).unwrap();
    let mut second = cluster.start_worker("copy", FLAGS);
    assert_eq!(api.wait_for_worker("copy", |worker| worker["state"] == "ready").await["id"], 2);
    assert_eq!(api.wait_for_worker("first", |_| true).await["state"], "ready");
    first.terminate().await;
    second.terminate().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_an_older_state_directory_is_accepted_after_a_server_restart() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(QUICK_LEASE).await;
    let api = cluster.api();
    drop(ready(&cluster).await);
    copy(&cluster.path("first"), &cluster.path("snapshot"));
    let mut later = ready(&cluster).await;
    let job = api.post("/api/jobs/quick?wait=30s", None).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    server.kill();
    later.kill();

    std::fs::remove_dir_all(cluster.path("first")).unwrap();
    copy(&cluster.path("snapshot"), &cluster.path("first"));
    let mut server = cluster.start_server(QUICK_LEASE).await;
    let mut back = cluster.start_worker("first", FLAGS);
    wait_for("it waits for the end of the lease", async || {
        back.log().contains("the server refused this worker").then_some(())
    })
    .await;
    let log = back.log();
    assert!(log.contains("WARN") && log.contains("code=\"cloned_worker\""), "{log}");
    let job = api.post("/api/jobs/quick?wait=60s", None).await;
    assert_eq!((&job["state"], &job["worker"]["id"]), (&json!("succeeded"), &json!(1)), "{job}");
    back.terminate().await;
    server.terminate().await;
}

/// A worker that joined.
async fn ready(cluster: &Cluster) -> crate::support::Process {
    let worker = cluster.start_worker("first", FLAGS);
    cluster.api().wait_for_worker("first", |worker| worker["state"] == "ready").await;
    worker
}

/// Copies a directory as an image of a machine would: everything but the lock, which belongs to a process.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// The shortest lease that the server accepts.
const QUICK_LEASE: &[&str] = &["--heartbeat", "1s", "--lease", "10s"];
const FLAGS: &[&str] = &["--no-docker", "--allow-process", "--on-term", "drain"];
const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: process, command: [\"true\"] }
  count:
    runtime: process
    command: [sh, -c, 'until [ -e \"$$END\" ]; do sleep 0.1; done']
    stop_grace_period: 5s
    lost_after: 60s
";
