//! Pauses of batches with real processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Cluster, http, wait_until};

use crate::running::Running;

const JOBS: &str = "version: 1
jobs:
  hold: { runtime: process, command: [sleep, '60'] }
  plain: { runtime: process, command: ['true'] }
";

/// Waits until the job waits for the end of a pause, and returns it.
async fn paused(running: &Running, id: u64) -> Value {
    running.api.wait_for_job(id, |job| job["pending_reason"]["code"] == "paused").await
}

/// Waits until the job waits, and for no pause.
async fn waits(running: &Running, id: u64) {
    running.api.wait_for_job(id, |job| job["pending_reason"]["code"] == "limit").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_paused_batch_wait_until_it_is_resumed_also_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let made = running.run_cli(&["run", "hold", "--count", "3", "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.api.wait_for_job(1, |job| job["state"] == "running").await;
    waits(&running, 2).await;

    let told = running.run_cli(&["pause", "batch:1", "--reason", "wrong input", "--for", "2h"]);
    assert!(told.code == 0 && told.out.starts_with("batch 1 paused"), "{told:?}");
    let job = paused(&running, 2).await;
    let text = job["pending_reason"]["text"].as_str().unwrap();
    assert!(text.starts_with("batch 1 is paused since 20") && text.ends_with(": wrong input"), "{job}");
    let explained = running.run_cli(&["explain", "3"]);
    assert!(explained.out.contains("batch 1 is paused since 20"), "{explained:?}");
    let batch = running.api.get("/api/batches/1").await;
    let pause = &batch["pause"];
    assert_eq!(
        (&pause["of"], &pause["batch"], &pause["reason"]),
        (&json!("batch"), &json!(1), &json!("wrong input"))
    );
    assert_eq!(running.api.get("/api/batches").await[0]["pause"], *pause);
    assert_eq!(running.api.get("/api/pauses").await, json!([pause]));
    let shown = running.run_cli(&["batch", "1"]);
    assert!(shown.out.contains("running (paused)") && shown.out.contains(": wrong input"), "{shown:?}");
    let listed = running.run_cli(&["pauses"]);
    assert!(listed.out.contains("batch 1") && listed.out.contains("wrong input"), "{listed:?}");
    assert_eq!(running.run_cli(&["pauses", "-o", "name"]).out, "batch:1\n");

    // Others of the definition go on, and what runs is left alone.
    let other = running.api.post("/api/jobs/hold", None).await["id"].as_u64().unwrap();
    running.api.wait_for_job(other, |job| job["state"] == "running").await;
    assert_eq!(running.api.get("/api/jobs/1").await["state"], "running");
    running.run_cli(&["cancel", "1", "--wait"]);
    running.server.kill();
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    let later = running.api.post("/api/jobs/plain", None).await["id"].as_u64().unwrap();
    running.api.wait_for_job(later, |job| job["state"] == "succeeded").await;
    assert_eq!(paused(&running, 2).await["state"], "queued");

    let resumed = running.run_cli(&["resume", "batch:1"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (0, "batch 1 resumed\n"), "{resumed:?}");
    running.api.wait_for_job(2, |job| job["state"] == "running").await;
    waits(&running, 3).await;
    assert_eq!(running.run_cli(&["resume", "batch:1"]).out, "batch 1 was not paused\n");
    let events = running.api.get_bytes("/api/events?follow=0&tail=9&kind=batch.resumed").await;
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains(r#""pause":{"of":"batch","batch":1}"#), "{events}");
    let audit = running.api.get("/api/audit?about=batch%201").await;
    let targets: Vec<&str> =
        audit.as_array().unwrap().iter().filter_map(|it| it["target"].as_str()).collect();
    assert!(targets.contains(&"/api/batches/1/pause"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_with_its_batch_and_only_a_live_batch_can_be_paused() {
    let running = Running::start(JOBS).await;
    let made = running.run_cli(&["run", "hold", "--count", "2", "--concurrency", "1", "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    running.run_cli(&["pause", "batch:1"]);
    assert_eq!(running.run_cli(&["pause", "batch:1"]).out, "batch 1 was paused already\n");
    running.run_cli(&["batch", "1", "cancel", "-y"]);
    wait_until("the pause is over", || async {
        running.api.get("/api/batches/1?wait=30s").await["ended_at"].is_string()
            && running.api.get("/api/pauses").await == json!([])
    })
    .await;
    let post = async |path: &str| {
        let answer = running.api.request(Method::POST, path, None, None).await.unwrap();
        (answer.status, answer.body["code"].clone())
    };
    assert_eq!(post("/api/batches/1/pause").await, (409, json!("already_finished")));
    assert_eq!(post("/api/batches/1/resume").await, (409, json!("already_finished")));
    assert_eq!(post("/api/batches/9/pause").await, (404, json!("batch_not_found")));
    assert_eq!(post("/api/batches/1/stop").await, (404, json!("not_found")));
    let ended = running.run_cli(&["pause", "batch:1"]);
    assert!(ended.code != 0 && ended.err.contains("batch 1 has ended: cancelled"), "{ended:?}");
    let usage = running.run_cli(&["pause", "batch:x"]);
    assert!(usage.code == 2 && usage.err.contains("a batch's id is a whole number"), "{usage:?}");
    assert_eq!(running.run_cli(&["pause", "batch:1", "--schedule", "s"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_pauses_batches_of_its_definitions_only() {
    let jobs = "version: 1\njobs: { hold: { runtime: fake }, other: { runtime: fake } }\n";
    let (cluster, _server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), jobs, &[]).await;
    let some = cluster.make_token(&admin, "some", &["--role", "submitter", "--definitions", "hold"]);
    for name in ["hold", "other"] {
        assert_eq!(cluster.run_as(&admin, &["run", name, "--count", "2"]).0, 0);
    }
    assert_eq!(cluster.run_as(&some, &["pause", "batch:1"]).0, 0);
    assert_eq!(cluster.run_as(&some, &["resume", "batch:1"]).0, 0);
    let (code, text) = cluster.run_as(&some, &["pause", "batch:3"]);
    assert!(code == 3 && text.contains("this acts on more than these"), "{code}: {text}");
    let viewer = cluster.make_token(&admin, "viewer", &["--role", "viewer"]);
    assert_eq!(cluster.run_as(&viewer, &["pause", "batch:1"]).0, 3);
}

/// The page of a batch has the buttons, and shows the pause with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_pauses_and_resumes_a_batch() {
    let running = Running::start(JOBS).await;
    running.run_cli(&["run", "hold", "--count", "2", "--concurrency", "1"]);
    let client = http::client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let page = async || client.get(running.api.url("/batches/1")).send().await.unwrap().text().await.unwrap();
    let post = async |verb: &str, body: &'static str| {
        let request = client.post(running.api.url(&format!("/batches/1/{verb}")));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("origin", running.api.url("")).body(body);
        request.send().await.unwrap().status().as_u16()
    };
    assert!(page().await.contains("action=\"/batches/1/pause\""), "{}", page().await);
    assert_eq!(post("pause", "reason=wrong+input&for=2h").await, 303);
    let shown = page().await;
    assert!(shown.contains("Pause of batch 1") && shown.contains("wrong input"), "{shown}");
    assert!(shown.contains("action=\"/batches/1/resume\""), "{shown}");
    assert_eq!(post("resume", "").await, 303);
    assert_eq!(running.api.get("/api/pauses").await, json!([]));
    running.run_cli(&["batch", "1", "cancel", "-y", "--wait"]);
    assert!(!page().await.contains("/batches/1/pause"));
}
