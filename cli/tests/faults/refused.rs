//! A store that refuses what the server has decided: our own mistake, planted here as a rule in the database that no server expects. The
//! server ends each time, as it must; whoever asks again and again ends it twice, and no third time.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use chaos::stage::Ledger;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Process, Stage, holds};

const JOBS: &str = "version: 1\njobs: { quick: { runtime: fake }, fails: { runtime: fake, environment: { FAKE_EXIT: '3' } } }\n";

/// A server whose store was given this rule before its first job.
async fn stage(rule: &str) -> (Stage, Process) {
    let stage = Stage::new(JOBS);
    stage.server(&[]).await.leave().await;
    Ledger::plant(&stage.path("data"), rule);
    let server = stage.server(&[]).await;
    (stage, server)
}

fn poison() -> Value {
    json!({ "priority": 77, "environment": { "PASSWORD": "hunter2" }, "args": ["hunter2"], "labels": { "for": "hunter2" } })
}

/// It has ended as it does when it can believe nothing any more.
async fn has_given_up(server: &mut Process) {
    let status = server.ended().await;
    assert_eq!(status.signal(), Some(6), "{status}:\n{}", server.said());
}

fn files_named(stage: &Stage, beginning: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(stage.path("data")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(beginning)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_store_refuses_twice_is_turned_away_and_all_others_are_served() {
    let (stage, mut server) = stage(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = stage.api();
    let ask = async |body: &Value| api.ask(Method::POST, "/api/jobs/quick", Some(body), Some("k1")).await;
    assert!(ask(&poison()).await.is_err(), "nobody answers for what is not written");
    has_given_up(&mut server).await;

    let mut server = stage.server(&[]).await;
    assert!(api.post("/api/jobs/quick", None).await["id"].is_u64(), "others are not suspected");
    assert!(ask(&poison()).await.is_err());
    has_given_up(&mut server).await;

    let mut server = stage.server(&[]).await;
    for _ in 0..3 {
        let refusal = ask(&poison()).await.unwrap();
        assert_eq!((refusal.status, &refusal.body["code"]), (500, &json!("refused_by_store")), "{refusal:?}");
    }
    assert!(api.post("/api/jobs/quick", None).await["id"].is_u64());
    assert!(server.is_alive());
    let evidence = files_named(&stage, "refused-group-");
    assert!(!evidence.is_empty());
    for file in evidence.iter().chain(&files_named(&stage, "refused-inputs")) {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("k1"), "{text}");
    }
    assert!(std::fs::read_to_string(&evidence[0]).unwrap().contains("priority 77"));

    // The mistake is put right; whoever knows that lets it be tried again.
    server.leave().await;
    Ledger::plant(&stage.path("data"), "DROP TRIGGER planted");
    std::fs::remove_file(stage.path("data/refused-inputs.txt")).unwrap();
    let mut server = stage.server(&[]).await;
    assert_eq!(ask(&poison()).await.unwrap().status, 201);
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_that_is_refused_in_a_later_slice_is_turned_away_too() {
    let (stage, mut server) = stage(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = stage.api();
    let mut batch = vec![json!({ "name": "quick" }); 2_500];
    batch[2_400]["priority"] = json!(77);
    let batch = Value::Array(batch);
    for _ in 0..2 {
        assert!(api.ask(Method::POST, "/api/jobs", Some(&batch), None).await.is_err());
        has_given_up(&mut server).await;
        server = stage.server(&[]).await;
        assert_eq!(api.get("/api/jobs").await, json!([]), "nothing of it is there");
    }
    let refusal = api.ask(Method::POST, "/api/jobs", Some(&batch), None).await.unwrap();
    assert_eq!((refusal.status, &refusal.body["code"]), (500, &json!("refused_by_store")), "{refusal:?}");
    let other = Value::Array(vec![json!({ "name": "quick" }); 2_500]);
    assert_eq!(api.post("/api/jobs", Some(&other)).await["count"], 2_500);
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_only_in_bad_company_is_served_after_the_restart_and_forgotten() {
    let (stage, mut server) = stage(
        "CREATE TRIGGER planted BEFORE INSERT ON jobs WHEN NEW.priority = 77 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = stage.api();
    assert!(api.ask(Method::POST, "/api/jobs/quick", Some(&poison()), None).await.is_err());
    has_given_up(&mut server).await;
    assert_eq!(files_named(&stage, "refused-inputs").len(), 1);
    Ledger::plant(&stage.path("data"), "DROP TRIGGER planted");
    let mut server = stage.server(&[]).await;
    let accepted = api.ask(Method::POST, "/api/jobs/quick", Some(&poison()), None).await.unwrap();
    assert_eq!(accepted.status, 201, "{accepted:?}");
    assert_eq!(
        files_named(&stage, "refused-inputs"),
        Vec::<PathBuf>::new(),
        "nothing is held against anybody"
    );
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_report_the_store_refuses_twice_is_shut_out_and_the_server_goes_on() {
    let (stage, mut server) = stage(
        "CREATE TRIGGER planted BEFORE INSERT ON ended WHEN NEW.state = 7 BEGIN SELECT RAISE(ABORT, 'planted'); END",
    )
    .await;
    let api = stage.api();
    let mut worker = stage.worker("only", &["--no-docker", "--allow-fake", "--slots", "2"]);
    api.worker_ready("only").await;
    let fails = api.post("/api/jobs/fails", None).await["id"].as_u64().unwrap();
    has_given_up(&mut server).await;
    let mut server = stage.server(&[]).await;
    has_given_up(&mut server).await;
    let mut server = stage.server(&[]).await;
    holds("its session is closed again and again", async || {
        server.said().matches("closing the session of a worker").count() >= 2
    })
    .await;
    assert!(server.is_alive());
    let job = api.get(&format!("/api/jobs/{fails}")).await;
    assert!(
        job["queuing"] == true || job["running"] == true,
        "nothing was believed, and nothing lost: {job}"
    );
    server.leave().await;

    Ledger::plant(&stage.path("data"), "DROP TRIGGER planted");
    std::fs::remove_file(stage.path("data/refused-inputs.txt")).unwrap();
    let mut server = stage.server(&[]).await;
    api.job(fails, |job| job["state"] == "failed").await;
    worker.leave().await;
    server.leave().await;
}
