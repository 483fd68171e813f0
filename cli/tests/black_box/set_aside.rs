//! A worker is set aside for a job that needs more of a resource than smaller jobs leave, with real processes.

use serde_json::Value;
use testkit::Cluster;

const JOBS: &str = "version: 1
defaults:
  runtime: process
  environment: { GATE: '' }
  command: [sh, -c, 'until [ -e \"$GATE\" ]; do sleep 0.01; done']
jobs:
  small: { resources: { custom: { license: 1 } } }
  large: { resources: { custom: { license: 2 } } }
";

#[tokio::test(flavor = "multi_thread")]
async fn smaller_jobs_do_not_pass_a_large_one_for_ever() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&["--set-aside-after", "1s"]).await;
    let flags = ["--no-docker", "--allow-process", "--slots", "4", "--resource", "license=2"];
    let _worker = cluster.start_worker("w1", &flags);
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    let submit = async |name: &str, gate: &str| {
        let body = serde_json::json!({ "environment": { "GATE": cluster.path(gate) } });
        api.post(&format!("/api/jobs/{name}"), Some(&body)).await["id"].as_u64().unwrap()
    };
    let first = [submit("small", "a").await, submit("small", "b").await];
    for id in first {
        api.wait_for_job(id, |job| job["state"] == "running").await;
    }
    let large = submit("large", "c").await;
    let waits_for = |code: &'static str| move |job: &Value| job["pending_reason"]["code"] == code;
    api.wait_for_job(large, waits_for("resources")).await;
    api.wait_for_worker("w1", |worker| worker["set_aside_for"] == large).await;

    let later = submit("small", "c").await;
    api.wait_for_job(later, waits_for("resources")).await;
    std::fs::write(cluster.path("a"), "").unwrap();
    api.wait_for_job(first[0], |job| job["state"] == "succeeded").await;
    api.wait_for_job(later, waits_for("set_aside")).await;
    let (code, text) = cluster.run_cli(&["explain", &later.to_string(), "--server", &cluster.address()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("it is set aside for job {large}")), "{text}");
    let (_, text) = cluster.run_cli(&["workers", "w1", "--server", &cluster.address()]);
    assert!(text.contains(&format!("for job {large}")), "{text}");

    std::fs::write(cluster.path("b"), "").unwrap();
    api.wait_for_job(large, |job| job["state"] == "running").await;
    api.wait_for_job(later, waits_for("resources")).await;
    // On a busy machine the small job has waited for so long by now that the worker is set aside for it.
    let worker = api.get("/api/workers/1").await;
    assert_ne!(worker["set_aside_for"], large, "{worker}");
    std::fs::write(cluster.path("c"), "").unwrap();
    for id in [large, later] {
        api.wait_for_job(id, |job| job["state"] == "succeeded").await;
    }
}

#[test]
fn a_wrong_wait_is_refused_with_its_flag() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    for wait in ["0s", "2d", "never"] {
        let (code, text) = cluster.run_cli(&["server", "--set-aside-after", wait]);
        assert_ne!(code, 0, "{text}");
        assert!(text.contains("--set-aside-after (LONGSHORE_SET_ASIDE_AFTER): "), "{text}");
    }
}
