//! `--priority-ageing` with real processes: a job that has waited goes before a younger one of a higher priority.

use serde_json::{Value, json};
use testkit::{Cluster, wait_for};

const JOBS: &str = "version: 1
jobs:
  quick: { runtime: process, command: [sleep, 0.1s] }
";

fn cluster() -> Cluster {
    Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS)
}

async fn submit(cluster: &Cluster, priority: i8) -> u64 {
    let job = cluster.api().post("/api/jobs/quick", Some(&json!({ "priority": priority }))).await;
    job["id"].as_u64().expect("an id")
}

/// The explanation of a job that has gained this number of steps.
async fn aged(cluster: &Cluster, id: u64, steps: u64) -> Value {
    let path = format!("/api/jobs/{id}/explain");
    wait_for("the job has aged", async || {
        let why = cluster.api().get(&path).await;
        why["aged_steps"].as_u64().is_some_and(|aged| aged >= steps).then_some(why)
    })
    .await
}

#[tokio::test]
async fn an_old_job_starts_before_a_younger_one_of_the_next_priority() {
    let cluster = cluster();
    let server = cluster.start_server(&["--priority-ageing", "1s"]).await;
    let old = submit(&cluster, 0).await;
    let why = aged(&cluster, old, 2).await;
    let text = why["reason"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("its priority 0 is aged by ") && text.contains(" steps and counts as "), "{why}");
    assert_eq!(cluster.api().get(&format!("/api/jobs/{old}")).await["priority"], 0, "it stays its own");

    // Ages are stored with the due time.
    drop(server);
    let _server = cluster.start_server(&["--priority-ageing", "1s"]).await;
    let young = submit(&cluster, 1).await;
    let urgent = submit(&cluster, 100).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "1"]);
    let mut starts = Vec::new();
    for id in [old, young, urgent] {
        let job = cluster.api().wait_for_job(id, |job| job["state"] == "succeeded").await;
        starts.push((job["attempts"][0]["started_at"].as_str().expect("it ran").to_owned(), id));
    }
    starts.sort();
    let order: Vec<u64> = starts.iter().map(|(_, id)| *id).collect();
    assert_eq!(order, [urgent, old, young], "{starts:?}");
}

#[tokio::test]
async fn without_the_flag_nothing_ages() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    let id = submit(&cluster, 0).await;
    let why = cluster.api().get(&format!("/api/jobs/{id}/explain")).await;
    assert!(why["aged_steps"].is_null() && why["reason"]["code"] == "no_worker", "{why}");
}

#[test]
fn a_wrong_period_is_refused_at_the_start() {
    let cluster = cluster();
    for period in ["0s", "999ms", "31d", "never"] {
        let (code, text) = cluster.run_cli(&["server", "--priority-ageing", period]);
        assert_ne!(code, 0);
        assert!(text.contains("--priority-ageing (LONGSHORE_PRIORITY_AGEING): "), "{text}");
        assert!(text.contains("1s to 7d"), "{text}");
    }
}
