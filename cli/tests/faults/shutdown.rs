//! SIGTERM: a worker finishes or returns its jobs, a server finishes its requests, and no job is lost.

use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Cluster, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn draining_worker_finishes_running_jobs_and_returns_the_others() {
    let cluster = Cluster::new(JOBS);
    let server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut first = cluster.start_worker("first", FAKE);
    api.wait_for_ready_worker("first").await;
    assert!(server.log().contains("worker joined worker=1 name=first"), "{}", server.log());
    let batch = api.post("/api/jobs", Some(&json!(vec![json!({ "name": "nap" }); 6]))).await;
    let jobs: Vec<u64> = (batch["first"].as_u64().unwrap()..).take(6).collect();
    api.wait_for_worker("first", |worker| worker["busy"] == 2 && worker["queued"] == 4).await;
    first.signal(Signal::TERM);
    // The attempts were returned before another worker could take them.
    wait_for("the unstarted ones are queued again", async || {
        let queued = api.get("/api/jobs?state=queued").await;
        queued.as_array().filter(|queued| queued.len() == 4).map(|_| ())
    })
    .await;
    let _second = cluster.start_worker("second", FAKE);
    let status = first.wait_for_exit().await;
    assert!(status.success(), "{status}:\n{}", first.log());
    wait_for("the server's log tells that it has left", async || {
        server.log().contains("worker left worker=1 name=first").then_some(())
    })
    .await;
    api.wait_until_all_ended().await;
    let mut on_first = 0;
    for job in jobs {
        let job = api.wait_for_job(job, |job| job["state"] == "succeeded").await;
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
async fn second_signal_stops_running_jobs_without_a_job_failure() {
    let cluster = Cluster::new(JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", FAKE);
    let job = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.wait_for_job(job, |job| job["state"] == "running").await;
    worker.signal(Signal::TERM);
    api.wait_for_worker("first", |worker| worker["state"] == "draining").await;
    assert!(worker.is_running(), "it waits for what runs");
    worker.terminate().await;
    let job = api.wait_for_job(job, |job| job["state"] == "queued").await;
    assert_eq!(attempts(&job)[0]["outcome"], "interrupted", "{job}");
    api.post(&format!("/api/jobs/{}/cancel", job["id"]), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_shuts_down_in_time_with_waiting_clients() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("first", FAKE);
    let running = api.post("/api/jobs/long", None).await["id"].as_u64().unwrap();
    api.wait_for_job(running, |job| job["state"] == "running").await;
    let waiting = tokio::spawn({
        let api = api.clone();
        async move { api.request(Method::POST, "/api/jobs/long?wait=60s", None, Some("waiting")).await }
    });
    let following = tokio::spawn({
        let api = api.clone();
        async move { api.request(Method::GET, &format!("/api/jobs/{running}/logs?follow=1"), None, None).await }
    });
    let accepted = wait_for("the one that waits is accepted", async || {
        api.get("/api/jobs?state=running,assigned,queued")
            .await
            .as_array()
            .filter(|all| all.len() == 2)
            .cloned()
    })
    .await;
    server.signal(Signal::TERM);
    let status = timeout(LEAVES_WITHIN, server.wait_for_exit()).await.expect("it leaves in time");
    assert!(status.success(), "{status}:\n{}", server.log());
    let answer = waiting.await.unwrap().expect("an answer, not a broken connection");
    assert_eq!((answer.status, answer.body["id"].as_u64()), (201, accepted[0]["id"].as_u64()));
    // The stream ends, with or without an error.
    let _ = following.await.unwrap();

    let mut server = cluster.start_server(&[]).await;
    assert!(worker.is_running());
    api.wait_for_worker("first", |worker| worker["state"] == "ready" && worker["busy"] == 2).await;
    let again = api.request(Method::POST, "/api/jobs/long", None, Some("waiting")).await.unwrap();
    assert_eq!((again.status, &again.body["id"]), (200, &answer.body["id"]));
    for job in api.all_jobs().await {
        assert_eq!(
            (job["state"].as_str(), job["attempt_count"].as_u64()),
            (Some("running"), Some(1)),
            "{job}"
        );
        api.post(&format!("/api/jobs/{}/cancel", job["id"]), None).await;
    }
    api.wait_until_all_ended().await;
    worker.terminate().await;
    server.terminate().await;
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
