//! A database that refuses a change of the server, planted as a trigger. The server ends each time; an input that is refused twice is
//! blocked, so it cannot end the server a third time.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::Database;

use crate::support::{Cluster, Process, wait_until};

const JOBS: &str = "version: 1\njobs: { quick: { runtime: fake }, fails: { runtime: fake, environment: { FAKE_EXIT: '3' } } }\n";

/// A server whose database got this trigger before its first job.
async fn cluster(rule: &str) -> (Cluster, Process) {
    let cluster = Cluster::new(JOBS);
    cluster.start_server(&[]).await.terminate().await;
    Database::execute(&cluster.path("data"), rule);
    let server = cluster.start_server(&[]).await;
    (cluster, server)
}

fn poison() -> Value {
    json!({ "priority": 77, "environment": { "PASSWORD": "hunter2" }, "args": ["hunter2"], "labels": { "for": "hunter2" } })
}

/// Waits until the server has ended as it does after a database error.
async fn wait_for_store_failure(server: &mut Process) {
    let status = server.wait_for_exit().await;
    assert_eq!(status.signal(), Some(6), "{status}:\n{}", server.log());
}

fn files_named(cluster: &Cluster, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cluster.path("data")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(beginning)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_refused_twice_by_the_store_is_blocked_and_others_are_served() {
    let (cluster, mut server) = cluster(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = cluster.api();
    let ask = async |body: &Value| api.request(Method::POST, "/api/jobs/quick", Some(body), Some("k1")).await;
    assert!(ask(&poison()).await.is_err(), "nobody answers for what is not written");
    wait_for_store_failure(&mut server).await;

    let mut server = cluster.start_server(&[]).await;
    assert!(api.post("/api/jobs/quick", None).await["id"].is_u64(), "others are not suspected");
    assert!(ask(&poison()).await.is_err());
    wait_for_store_failure(&mut server).await;

    let mut server = cluster.start_server(&[]).await;
    for _ in 0..3 {
        let refusal = ask(&poison()).await.unwrap();
        assert_eq!((refusal.status, &refusal.body["code"]), (500, &json!("refused_by_store")), "{refusal:?}");
    }
    assert!(api.post("/api/jobs/quick", None).await["id"].is_u64());
    assert!(server.is_running());
    let evidence = files_named(&cluster, "refused-group-");
    assert!(!evidence.is_empty());
    for file in evidence.iter().chain(&files_named(&cluster, "refused-inputs")) {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("k1"), "{text}");
    }
    assert!(std::fs::read_to_string(&evidence[0]).unwrap().contains("priority 77"));

    // The operator removes the trigger and the file of blocked inputs.
    server.terminate().await;
    Database::execute(&cluster.path("data"), "DROP TRIGGER planted");
    std::fs::remove_file(cluster.path("data/refused-inputs.txt")).unwrap();
    let mut server = cluster.start_server(&[]).await;
    assert_eq!(ask(&poison()).await.unwrap().status, 201);
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_batch_refused_in_a_later_slice_is_blocked() {
    let (cluster, mut server) = cluster(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = cluster.api();
    let mut batch = vec![json!({ "name": "quick" }); 2_500];
    batch[2_400]["priority"] = json!(77);
    let batch = Value::Array(batch);
    for _ in 0..2 {
        assert!(api.request(Method::POST, "/api/jobs", Some(&batch), None).await.is_err());
        wait_for_store_failure(&mut server).await;
        server = cluster.start_server(&[]).await;
        assert_eq!(api.get("/api/jobs").await, json!([]), "nothing of it is there");
    }
    let refusal = api.request(Method::POST, "/api/jobs", Some(&batch), None).await.unwrap();
    assert_eq!((refusal.status, &refusal.body["code"]), (500, &json!("refused_by_store")), "{refusal:?}");
    let other = Value::Array(vec![json!({ "name": "quick" }); 2_500]);
    assert_eq!(api.post("/api/jobs", Some(&other)).await["count"], 2_500);
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspected_request_is_served_after_the_restart_and_cleared() {
    let (cluster, mut server) = cluster(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = cluster.api();
    assert!(api.request(Method::POST, "/api/jobs/quick", Some(&poison()), None).await.is_err());
    wait_for_store_failure(&mut server).await;
    assert_eq!(files_named(&cluster, "refused-inputs").len(), 1);
    Database::execute(&cluster.path("data"), "DROP TRIGGER planted");
    let mut server = cluster.start_server(&[]).await;
    let accepted = api.request(Method::POST, "/api/jobs/quick", Some(&poison()), None).await.unwrap();
    assert_eq!(accepted.status, 201, "{accepted:?}");
    assert_eq!(
        files_named(&cluster, "refused-inputs"),
        Vec::<PathBuf>::new(),
        "nothing is held against anybody"
    );
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_with_a_report_refused_twice_is_closed_and_the_server_continues() {
    let (cluster, mut server) = cluster(
        "CREATE TRIGGER planted BEFORE INSERT ON ended WHEN NEW.state = 7 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = cluster.api();
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-fake", "--slots", "2"]);
    api.wait_for_ready_worker("only").await;
    let fails = api.post("/api/jobs/fails", None).await["id"].as_u64().unwrap();
    wait_for_store_failure(&mut server).await;
    let mut server = cluster.start_server(&[]).await;
    wait_for_store_failure(&mut server).await;
    let mut server = cluster.start_server(&[]).await;
    wait_until("its session is closed again and again", async || {
        server.log().matches("closed a worker's session").count() >= 2
    })
    .await;
    assert!(server.is_running());
    let job = api.get(&format!("/api/jobs/{fails}")).await;
    assert!(
        job["queuing"] == true || job["running"] == true,
        "nothing was believed, and nothing lost: {job}"
    );
    server.terminate().await;

    Database::execute(&cluster.path("data"), "DROP TRIGGER planted");
    std::fs::remove_file(cluster.path("data/refused-inputs.txt")).unwrap();
    let mut server = cluster.start_server(&[]).await;
    api.wait_for_job(fails, |job| job["state"] == "failed").await;
    worker.terminate().await;
    server.terminate().await;
}
