//! SIGTERM: what is asked to leave finishes what it must, gives back the rest, and nothing is lost on the way.

use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Stage, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_to_leave_finishes_what_runs_and_gives_back_the_rest() {
    let stage = Stage::new(JOBS);
    let server = stage.server(&[]).await;
    let api = stage.api();
    let mut first = stage.worker("first", FAKE);
    api.worker_ready("first").await;
    assert!(server.said().contains("a worker has joined worker=1 name=first"), "{}", server.said());
    let batch = api.post("/api/jobs", Some(&json!(vec![json!({ "name": "nap" }); 6]))).await;
    let jobs: Vec<u64> = (batch["first"].as_u64().unwrap()..).take(6).collect();
    api.worker("first", |worker| worker["busy"] == 2 && worker["queued"] == 4).await;
    first.signal(Signal::TERM);
    // It has given them back before anybody else could take them.
    eventually("the unstarted ones are queued again", async || {
        let queued = api.get("/api/jobs?state=queued").await;
        queued.as_array().filter(|queued| queued.len() == 4).map(|_| ())
    })
    .await;
    let _second = stage.worker("second", FAKE);
    let status = first.ended().await;
    assert!(status.success(), "{status}:\n{}", first.said());
    eventually("the server's log tells that it has left", async || {
        server.said().contains("a worker has left worker=1 name=first").then_some(())
    })
    .await;
    api.all_ended().await;
    let mut on_first = 0;
    for job in jobs {
        let job = api.job(job, |job| job["state"] == "succeeded").await;
        let stages: Vec<(&str, &str)> = attempts(&job)
            .iter()
            .map(|it| (it["worker"]["name"].as_str().unwrap(), it["outcome"].as_str().unwrap()))
            .collect();
        match stages[..] {
            [("first", "succeeded")] => on_first += 1,
            [("first", "released"), ("second", "succeeded")] => {
                assert_eq!(attempts(&job)[0]["released"], "draining", "{job}");
            }
            _ => panic!("{job}"),
        }
    }
    assert_eq!(on_first, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_what_runs_and_the_job_is_not_blamed() {
    let stage = Stage::new(JOBS);
    let _server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.job(job, |job| job["state"] == "running").await;
    worker.signal(Signal::TERM);
    api.worker("first", |worker| worker["state"] == "draining").await;
    assert!(worker.is_alive(), "it waits for what runs");
    worker.leave().await;
    let job = api.job(job, |job| job["state"] == "queued").await;
    assert_eq!(attempts(&job)[0]["outcome"], "interrupted", "{job}");
    api.post(&format!("/api/jobs/{}/cancel", job["id"]), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_leaves_in_time_whoever_waits_for_it() {
    let stage = Stage::new(JOBS);
    let mut server = stage.server(&[]).await;
    let api = stage.api();
    let mut worker = stage.worker("first", FAKE);
    let running = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.job(running, |job| job["state"] == "running").await;
    let waiting = tokio::spawn({
        let api = api.clone();
        async move { api.ask(Method::POST, "/api/jobs/long?wait=60s", None, Some("waiting")).await }
    });
    let following = tokio::spawn({
        let api = api.clone();
        async move { api.ask(Method::GET, &format!("/api/jobs/{running}/logs?follow=1"), None, None).await }
    });
    let accepted = eventually("the one that waits is accepted", async || {
        api.get("/api/jobs?state=running,assigned,queued")
            .await
            .as_array()
            .filter(|all| all.len() == 2)
            .cloned()
    })
    .await;
    server.signal(Signal::TERM);
    let status = timeout(LEAVES_WITHIN, server.ended()).await.expect("it leaves in time");
    assert!(status.success(), "{status}:\n{}", server.said());
    let answer = waiting.await.unwrap().expect("an answer, not a broken connection");
    assert_eq!((answer.status, answer.body["id"].as_u64()), (201, accepted[0]["id"].as_u64()));
    // The stream ends, in whatever way.
    let _ = following.await.unwrap();

    let mut server = stage.server(&[]).await;
    assert!(worker.is_alive());
    api.worker("first", |worker| worker["state"] == "ready" && worker["busy"] == 2).await;
    let again = api.ask(Method::POST, "/api/jobs/long", None, Some("waiting")).await.unwrap();
    assert_eq!((again.status, &again.body["id"]), (200, &answer.body["id"]));
    for job in api.all_jobs().await {
        assert_eq!(
            (job["state"].as_str(), job["attempt_count"].as_u64()),
            (Some("running"), Some(1)),
            "{job}"
        );
        api.post(&format!("/api/jobs/{}/cancel", job["id"]), None).await;
    }
    api.all_ended().await;
    worker.leave().await;
    server.leave().await;
}

fn attempts(job: &Value) -> &Vec<Value> {
    job["attempts"].as_array().unwrap()
}

const LEAVES_WITHIN: Duration = Duration::from_secs(5);
const FAKE: &[&str] =
    &["--no-docker", "--allow-fake", "--slots", "2", "--backlog", "4", "--on-term", "drain"];
const JOBS: &str = "\
version: 1
jobs:
  nap: { runtime: fake, environment: { FAKE_SLEEP: 6s } }
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
