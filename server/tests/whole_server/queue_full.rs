//! A whole server with few places for jobs, over HTTP: what would be too much is refused as a whole, and accepted when some have ended.

use std::path::Path;

use serde_json::Value;

use crate::support::RunningServer;

async fn make(server: &RunningServer, jobs: usize) -> (String, Value) {
    let lines = "{\"name\":\"resize\"}\n".repeat(jobs);
    server.send("POST", "/api/jobs", &[("content-type", "application/x-ndjson")], &lines).await
}

/// Starts it on what is there, with this number of places.
async fn start(home: &Path, max_jobs: &str) -> RunningServer {
    let jobs = "jobs: { resize: { image: 'resize:1' } }";
    RunningServer::start(home, jobs, |settings| settings.max_jobs = max_jobs.to_owned()).await
}

#[tokio::test]
async fn more_jobs_than_there_are_places_for_are_refused_until_some_have_ended() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), "3").await;

    let (head, _) = make(&server, 2).await;
    assert!(head.starts_with("http/1.1 201"), "{head}");
    let (head, problem) = make(&server, 2).await;
    assert!(head.starts_with("http/1.1 429") && head.contains("\nretry-after: 10\r"), "{head}");
    assert_eq!((&problem["code"], &problem["status"]), (&"queue_full".into(), &429.into()), "{problem}");
    let (head, problem) = make(&server, 4).await;
    assert!(head.starts_with("http/1.1 429") && !head.contains("retry-after"), "never would it fit: {head}");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.starts_with("divide the batch")), "{problem}");
    let (head, _) = make(&server, 1).await;
    assert!(head.starts_with("http/1.1 201"), "nothing was left of the refused batch: {head}");

    server.ask("POST", "/api/jobs/1/cancel", "").await;
    let (head, job) = server.ask("POST", "/api/jobs/1/retry", "").await;
    assert!(head.starts_with("http/1.1 201"), "{job}");
    let (head, problem) = server.ask("POST", "/api/jobs/1/retry", "").await;
    assert!(head.starts_with("http/1.1 429"), "another try is a job like others: {problem}");

    server.stop().await;
}

#[tokio::test]
async fn a_store_with_more_jobs_than_places_is_loaded_as_it_is() {
    let home = tempfile::tempdir().expect("a place");
    let server = start(home.path(), "3").await;
    make(&server, 3).await;
    server.stop().await;

    let server = start(home.path(), "1").await;
    let (head, problem) = make(&server, 1).await;
    assert!(head.starts_with("http/1.1 429"), "{problem}");
    for job in 1..=3 {
        let (head, problem) = server.ask("POST", &format!("/api/jobs/{job}/cancel"), "").await;
        assert!(head.starts_with("http/1.1 200"), "{problem}");
    }
    let (head, problem) = make(&server, 1).await;
    assert!(head.starts_with("http/1.1 201"), "{problem}");
    server.stop().await;
}
