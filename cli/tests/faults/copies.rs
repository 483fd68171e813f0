//! Two workers on copies of one state directory, and one whose directory is as it was before: who is let in, and what is believed.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Stage, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_worker_are_shut_out_until_one_is_left_and_nothing_is_lost() {
    let stage = Stage::new(JOBS);
    let mut server = stage.server(QUICK_LEASE).await;
    let api = stage.api();
    let mut first = stage.worker("first", FLAGS);
    let job =
        api.post("/api/jobs/count", Some(&json!({ "environment": { "END": stage.path("end") } }))).await;
    let job = job["id"].as_u64().unwrap();
    api.job(job, |job| job["state"] == "running").await;

    copy(&stage.path("first"), &stage.path("copy"));
    let mut second = stage.worker("copy", FLAGS);
    let shown = api.worker("first", |worker| worker["state"] == "cloned").await;
    assert_eq!(
        (&shown["connected"], shown["copies"].as_array().map(Vec::len)),
        (&json!(false), Some(2)),
        "{shown}"
    );
    let shown = api.job(job, |job| job["worker_unreachable_since"].is_string()).await;
    assert_eq!(shown["state"], "running", "nothing is concluded yet: {shown}");
    let (code, said) = stage.verb(&["workers", "--server", &stage.address()]);
    assert!(code == 0 && said.contains("several processes say that they are first"), "{said}");
    assert!(server.said().contains("one state directory is a copy of the other"), "{}", server.said());
    eventually("both know why they are refused", async || {
        let both = [&first, &second].map(|worker| worker.said().contains("remove its state directory"));
        (both == [true, true]).then_some(())
    })
    .await;
    assert!(first.is_alive() && second.is_alive(), "whoever is refused tries again, for ever");

    second.kill();
    let shown = api.worker("first", |worker| worker["state"] == "ready").await;
    assert_eq!((&shown["id"], &shown["busy"]), (&json!(1), &json!(1)), "{shown}");
    std::fs::write(stage.path("end"), "").unwrap();
    let shown = api.job(job, |job| job["state"] == "succeeded").await;
    assert_eq!(shown["attempt_count"], 1, "{shown}");

    std::fs::remove_dir_all(stage.path("copy")).unwrap();
    let mut second = stage.worker("copy", FLAGS);
    assert_eq!(api.worker("copy", |worker| worker["state"] == "ready").await["id"], 2);
    assert_eq!(api.worker("first", |_| true).await["state"], "ready");
    first.leave().await;
    second.leave().await;
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_set_back_is_let_in_and_believed_although_the_server_was_restarted() {
    let stage = Stage::new(JOBS);
    let mut server = stage.server(QUICK_LEASE).await;
    let api = stage.api();
    drop(ready(&stage).await);
    copy(&stage.path("first"), &stage.path("snapshot"));
    let mut later = ready(&stage).await;
    let job = api.post("/api/jobs/quick?wait=30s", None).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    server.kill();
    later.kill();

    std::fs::remove_dir_all(stage.path("first")).unwrap();
    copy(&stage.path("snapshot"), &stage.path("first"));
    let mut server = stage.server(QUICK_LEASE).await;
    let mut back = stage.worker("first", FLAGS);
    eventually("it waits for the end of the lease", async || {
        back.said().contains("cloned_worker").then_some(())
    })
    .await;
    let job = api.post("/api/jobs/quick?wait=60s", None).await;
    assert_eq!((&job["state"], &job["worker"]["id"]), (&json!("succeeded"), &json!(1)), "{job}");
    back.leave().await;
    server.leave().await;
}

/// A worker that was let in.
async fn ready(stage: &Stage) -> crate::support::Process {
    let worker = stage.worker("first", FLAGS);
    stage.api().worker("first", |worker| worker["state"] == "ready").await;
    worker
}

/// As an image of a machine has it: everything but the lock, which is held by a process.
fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// The shortest that a server takes.
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
