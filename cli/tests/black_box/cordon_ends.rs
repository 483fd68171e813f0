//! Cordons that end by themselves, with real processes: the end outlives a restart of the server, and comes while nobody asks.

use serde_json::{Value, json};
use testkit::wait_until;

use crate::running::Running;

const JOBS: &str = "version: 1
jobs:
  plain: { runtime: process, command: ['true'] }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_with_an_end_ends_by_itself_also_over_a_restart() {
    let mut running = Running::start(JOBS).await;
    let cordoned = running.run_cli(&["cordon", "only", "--for", "1h", "--reason", "disk swap"]);
    assert_eq!(cordoned.code, 0, "{cordoned:?}");
    assert!(cordoned.out.contains("is cordoned for 1h and takes no new jobs"), "{cordoned:?}");
    let job = running.api.post("/api/jobs/plain", None).await["id"].as_u64().unwrap();
    let until = running.api.get("/api/workers").await[0]["cordon"]["until"].as_str().unwrap().to_owned();
    let until_text = format!("until {until}");
    for words in [&["workers"][..], &["workers", "only"]] {
        let shown = running.run_cli(words);
        assert!(shown.out.contains(&format!("ready (cordoned {until_text})")), "{shown:?}");
    }
    let why = running.run_cli(&["explain", &job.to_string()]);
    assert!(why.out.contains(&format!("only, cordoned {until_text}")), "{why:?}");

    // The new end comes while the server is down.
    let soon = running.run_cli(&["cordon", "only", "--for", "6s", "-o", "json"]);
    assert_eq!(soon.code, 0, "{soon:?}");
    let worker: Value = serde_json::from_str(&soon.out).unwrap();
    let until = worker["cordon"]["until"].as_str().unwrap().to_owned();
    running.server.kill();
    let end: jiff::Timestamp = until.parse().unwrap();
    wait_until("the end of the cordon is past", async || jiff::Timestamp::now() > end).await;
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let worker = running.api.get("/api/workers").await[0].clone();
    assert_eq!((&worker["cordoned"], &worker["cordon"]), (&json!(false), &Value::Null), "{worker}");
    let events = running.run_cli(&["events", "--kind", "worker.changed"]);
    assert!(events.out.contains(&format!("its cordon was until {until}")), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_may_be_a_time_of_day_and_is_taken_back_by_a_cordon_without_one() {
    let running = Running::start(JOBS).await;
    let cordoned = running.run_cli(&["cordon", "only", "--until", "18:30", "--timezone", "Europe/Berlin"]);
    assert_eq!(cordoned.code, 0, "{cordoned:?}");
    let end = running.api.get("/api/workers").await[0]["cordon"]["until"].as_str().unwrap().to_owned();
    assert!(
        end.contains(":30:00.000Z") && cordoned.out.contains("is cordoned until 20"),
        "{end} {cordoned:?}"
    );
    let endless = running.run_cli(&["cordon", "only", "-o", "json"]);
    let worker: Value = serde_json::from_str(&endless.out).unwrap();
    assert_eq!((&worker["cordoned"], &worker["cordon"]["until"]), (&json!(true), &Value::Null), "{worker}");
    for (words, code) in [
        (&["cordon", "only", "--for", "1h", "--until", "18:30"][..], 2),
        (&["cordon", "only", "--for", "400d"], 2),
        (&["cordon", "only", "--until", "2020-01-01T00:00Z"], 2),
        (&["drain", "only", "--for", "1h"], 2),
    ] {
        let refused = running.run_cli(words);
        assert_eq!(refused.code, code, "{words:?}: {refused:?}");
    }
}
