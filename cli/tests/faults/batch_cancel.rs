//! The cancel of a large batch: one request is enough, and a server that is killed after its answer goes on with it when it starts again.

use serde_json::{Value, json};

use crate::support::{Api, Cluster, wait_for, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_batch_ends_after_a_kill_and_nothing_of_it_starts() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let worker = ["--no-docker", "--allow-process", "--slots", "2", "--backlog", "2"];
    let _worker = cluster.start_worker("one", &worker);
    let api = cluster.api();
    api.wait_for_ready_worker("one").await;
    let made = api.post("/api/jobs/long", Some(&json!({"count": MEMBERS}))).await;
    assert_eq!(made["batch"], 1, "{made}");
    wait_until("two members run", async || batch(&api).await["counts"]["running"] == 2).await;
    let (code, said) = cluster.run_cli(&["batch", "1", "cancel", "--yes", "--server", &cluster.address()]);
    server.kill();
    assert_eq!((code, said.as_str()), (0, &*format!("batch 1: {MEMBERS} jobs are being cancelled\n")));

    let _server = cluster.start_server(&[]).await;
    // It has room for more than ran before.
    let _second = cluster.start_worker("two", &["--no-docker", "--allow-process", "--slots", "8"]);
    api.wait_for_ready_worker("two").await;
    let ended = wait_for("the end of the batch", async || {
        Some(batch(&api).await).filter(|batch| batch["ended_at"].is_string())
    })
    .await;
    assert_eq!((&ended["state"], &ended["counts"]["cancelled"]), (&json!("cancelled"), &json!(MEMBERS)));
    let by = ended["cancelled_by"].as_str().unwrap();
    assert!(by.starts_with("http 127.0.0.1") && ended["cancelled_at"].is_string(), "{ended}");
    let jobs = api.get("/api/jobs?batch=1&limit=1").await;
    assert_eq!(jobs[0]["reason"], format!("cancelled by {by}"), "{jobs}");
    let on_second = api.get("/api/jobs?batch=1&worker=two").await;
    assert_eq!(on_second, json!([]), "a member was assigned after the cancel");
    let first = api.get("/api/jobs/1").await;
    assert_eq!(first["reason"], format!("cancelled by {by}"), "it ran: {first}");
    let (_, listed) = cluster.run_cli(&["batch", "1", "cancel", "--yes", "--server", &cluster.address()]);
    assert_eq!(listed, "batch 1: all jobs have ended\n");
}

async fn batch(api: &Api) -> Value {
    api.get("/api/batches/1").await
}

/// More than 20 steps cancel, so that the kill comes while they go on. A test of the scheduler makes sure of a start in the middle.
const MEMBERS: u32 = 20_000;

const JOBS: &str = "version: 1
jobs:
  long: { runtime: process, command: [sleep, '600'] }
";
