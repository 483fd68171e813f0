//! The position of a waiting job and the estimate of its wait, by the real program.

use serde_json::{Value, json};
use testkit::{Api, Cluster};

/// Starts a job that runs until it is cancelled, and lets others wait behind it. Returns those that wait.
async fn wait_behind_one(api: &Api, name: &str, others: usize) -> Vec<u64> {
    let submit = async |args: Value| {
        let made = api.post(&format!("/api/jobs/{name}"), Some(&json!({ "args": [args] }))).await;
        made["id"].as_u64().expect("a number")
    };
    let first = submit(json!("3600")).await;
    api.wait_for_job(first, |job| job["state"] == "running").await;
    let mut waiting = Vec::new();
    for _ in 0..others {
        waiting.push(submit(json!("0")).await);
    }
    waiting
}

async fn explain(api: &Api, job: u64) -> Value {
    api.get(&format!("/api/jobs/{job}/explain")).await
}

#[tokio::test]
async fn a_waiting_job_tells_its_position_and_how_long_it_will_wait() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let _worker =
        cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "3", "--backlog", "0"]);
    api.wait_for_ready_worker("only").await;

    // Without ended jobs there is a position and no estimate.
    let waiting = wait_behind_one(&api, "limited", 3).await;
    let why = explain(&api, waiting[2]).await;
    let place = |why: &Value| (why["before"].as_u64(), why["lane_jobs"].as_u64());
    assert_eq!((place(&why), &why["estimate"]), ((Some(2), Some(3)), &Value::Null), "{why}");
    assert_eq!(why["reason"]["code"], "limit", "{why}");

    api.post(&format!("/api/jobs/{}/cancel", waiting[0] - 1), None).await;
    for job in &waiting {
        api.wait_for_job(*job, |job| job["state"] == "succeeded").await;
    }
    let waiting = wait_behind_one(&api, "limited", 3).await;
    let why = explain(&api, waiting[1]).await;
    assert_eq!(place(&why), (Some(1), Some(3)), "{why}");
    let text = why["estimate"]["text"].as_str().unwrap();
    assert!(text.starts_with("1 job goes before it, 1 run at once, and each takes "), "{text}");
    assert!(text.ends_with(", the median of the last 3"), "{text}");
    assert!(why["estimate"]["wait_ms"].is_u64(), "{why}");
    let (code, said) = cluster.run_cli(&["explain", &waiting[1].to_string(), "--server", &cluster.address()]);
    assert!(code == 0 && said.contains("position 2 of 3, among the waiting jobs"), "{said}");
    assert!(said.contains(&format!(", if {text}")), "{said}");
    let held =
        format!("limit of the definition limited: 1 of 1 in use, by job {}; 3 jobs wait\n", waiting[0] - 1);
    assert!(said.contains(&held), "{said}");
    let page = String::from_utf8(api.get_bytes(&format!("/jobs/{}", waiting[1])).await).unwrap();
    assert!(page.contains("Position 2 of 3, among") && page.contains(text), "{page}");

    // Another definition holds permits of a group, so nothing is known of its duration.
    let waiting = wait_behind_one(&api, "shared", 1).await;
    let why = explain(&api, waiting[0]).await;
    assert_eq!((place(&why), &why["estimate"]), ((Some(0), Some(1)), &Value::Null), "{why}");

    // The last slot is taken: as many of its jobs run as now.
    for _ in 0..3 {
        let quick = api.post("/api/jobs/plain?wait=30s", Some(&json!({ "args": ["0"] }))).await;
        assert_eq!(quick["state"], "succeeded");
    }
    let waiting = wait_behind_one(&api, "plain", 2).await;
    let why = explain(&api, waiting[1]).await;
    assert_eq!((why["reason"]["code"].as_str(), place(&why)), (Some("busy"), (Some(1), Some(2))));
    let text = why["estimate"]["text"].as_str().unwrap();
    assert!(
        text.starts_with("1 job goes before it, 1 run at once, as many as now, and each takes "),
        "{text}"
    );
    let held = waiting[0] - 1;
    api.post(&format!("/api/jobs/{held}/cancel"), None).await;
    api.wait_for_job(waiting[1], |job| job["state"] == "succeeded").await;

    // Jobs with other keys wait for the same slot, and nobody knows when their turns come.
    let keyed = async |customer: &str, seconds: &str, wait: &str| {
        let body = json!({ "labels": { "customer": customer }, "args": [seconds] });
        api.post(&format!("/api/jobs/keyed{wait}"), Some(&body)).await
    };
    for _ in 0..3 {
        assert_eq!(keyed("acme", "0", "?wait=30s").await["state"], "succeeded");
    }
    let held = keyed("acme", "3600", "").await["id"].as_u64().unwrap();
    api.wait_for_job(held, |job| job["state"] == "running").await;
    let own = keyed("globex", "0", "").await["id"].as_u64().unwrap();
    let why = explain(&api, own).await;
    assert_eq!((why["reason"]["code"].as_str(), place(&why)), (Some("busy"), (Some(0), Some(1))), "{why}");
    assert!(why["estimate"]["wait_ms"].is_u64(), "{why}");
    let other = keyed("initech", "0", "").await["id"].as_u64().unwrap();
    let why = explain(&api, other).await;
    assert_eq!((place(&why), &why["estimate"]), ((Some(0), Some(1)), &Value::Null), "{why}");
    api.post(&format!("/api/jobs/{held}/cancel"), None).await;
    api.wait_for_job(other, |job| job["state"] == "succeeded").await;

    // A rate needs no durations.
    let rated = [0, 1, 2].map(async |_| api.post("/api/jobs/rated", None).await["id"].as_u64().unwrap());
    let mut jobs = Vec::new();
    for job in rated {
        jobs.push(job.await);
    }
    let why = explain(&api, jobs[2]).await;
    assert_eq!((why["reason"]["code"].as_str(), place(&why)), (Some("rate_limit"), (Some(1), Some(2))));
    let wait = why["estimate"]["wait_ms"].as_u64().unwrap();
    assert!((3_600_000..=7_200_000).contains(&wait), "{why}");
    let text = why["estimate"]["text"].as_str().unwrap();
    assert_eq!(text, "1 job goes before it, and the rate allows a start every 1h 0m");
}

const JOBS: &str = r"
defaults: { runtime: process, command: [sleep] }
jobs:
  limited: { concurrency: 1 }
  shared: { concurrency: { limit: 1, group: db } }
  plain: {}
  keyed: { concurrency: { limit: 3, key: labels.customer } }
  rated: { command: [sleep, '0'], rate_limit: { limit: 1, per: 1h } }
";
