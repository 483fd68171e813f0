//! Jobs that come after a whole batch, by the real program: when they start, what they are told, retries, and crashes of the server.

use std::fs;

use serde_json::json;

use crate::running::Running;

const JOBS: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  wait:
    params: { file: { type: string, required: true } }
    environment: { FILE: "${params.file}" }
    command: [sh, -c, 'while [ ! -e "$$FILE" ]; do sleep 0.05; done']
  check:
    params: { file: { type: string, required: true } }
    environment: { FILE: "${params.file}" }
    command: [sh, -c, 'while [ ! -e "$$FILE.go" ]; do sleep 0.05; done; test -e "$$FILE"']
  report:
    params: { file: { type: string, default: /dev/null } }
    environment: { FILE: "${params.file}" }
    command: [sh, -c, 'echo run >> "$$FILE"; printf "%s" "$$LONGSHORE_AFTER" > "$$LONGSHORE_RESULT"']
  alarm: { command: ["true"] }
"#;

/// The first crash comes before the last member ends, so the start after it passes the end on. The second one comes after the job has run.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_after_a_batch_runs_once_over_crashes_of_the_server() {
    let mut running = Running::start(JOBS).await;
    let (gate, runs) = (running.cluster.path("gate"), running.cluster.path("runs"));
    let file = |path: &std::path::Path| format!("file={}", path.display());
    let (gate_param, runs_param) = (file(&gate), file(&runs));
    let made = ["run", "wait", "--count", "3", "--batch-name", "film", "-p", &gate_param, "-q"];
    assert_eq!(running.run_cli(&made).out, "1\n");
    let report = ["run", "report", "--after", "batch:1", "-p", &runs_param, "-q"];
    assert_eq!(running.run_cli(&report).out, "4\n");
    let alarm = ["run", "alarm", "--after", "batch:1:not_succeeded", "-q"];
    assert_eq!(running.run_cli(&alarm).out, "5\n");
    running.api.wait_for_job(3, |job| job["state"] == "running").await;

    let text = "batch 1, which it comes after, must end first (after)";
    let reason = json!({"code": "dependencies", "text": text});
    assert_eq!(running.api.get("/api/jobs/4").await["pending_reason"], reason);
    let explained = running.run_cli(&["explain", "4"]);
    assert!(explained.out.contains(text), "{explained:?}");
    let tree = running.run_cli(&["pipeline", "5"]);
    assert_eq!(tree.out, "5 alarm scheduled, after batch 1 (running) if not_succeeded\n", "{tree:?}");
    let shown = running.run_cli(&["batch", "1"]);
    assert!(shown.out.contains("job 4 (scheduled), job 5 if not_succeeded (scheduled)"), "{shown:?}");

    running.server.kill();
    fs::write(&gate, "").unwrap();
    let mut server = running.cluster.start_server(&[]).await;
    let report = running.api.wait_for_job(4, |job| job["ended_at"].is_string()).await;
    let told = json!([{"batch": 1, "name": "film", "state": "succeeded", "count": 3, "succeeded": 3, "failed": 0, "cancelled": 0}]);
    assert_eq!((&report["state"], &report["result"]), (&json!("succeeded"), &told), "{report}");
    let after = json!([{"batch": 1, "name": "film", "outcome": "succeeded", "state": "succeeded"}]);
    assert_eq!(report["after"], after);
    let alarm = running.api.wait_for_job(5, |job| job["ended_at"].is_string()).await;
    let skipped = "skipped: it runs only if batch 1 fails, but batch 1 succeeded";
    assert_eq!((&alarm["state"], &alarm["reason"]), (&json!("cancelled"), &json!(skipped)), "{alarm}");
    server.kill();
    let _server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;

    // A batch that has ended decides at once.
    let late = running.run_cli(&["run", "alarm", "--after", "batch:1:ended", "--wait"]);
    assert_eq!(late.code, 0, "{late:?}");
    let refused = running.run_cli(&["run", "alarm", "--after", "batch:1:failed"]);
    assert!(refused.code != 0 && refused.err.contains("batch 1 has ended as succeeded"), "{refused:?}");
    let unknown = running.run_cli(&["run", "alarm", "--after", "batch:2"]);
    assert!(unknown.code != 0 && unknown.err.contains("there is no batch 2"), "{unknown:?}");
    assert_eq!(fs::read_to_string(&runs).unwrap(), "run\n");
    let dependents = running.api.get("/api/batches/1").await["dependents"].clone();
    let jobs: Vec<_> = dependents.as_array().unwrap().iter().map(|it| it["job"].clone()).collect();
    assert_eq!(jobs, [json!(4), json!(5), json!(6)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_batch_has_cancelled_comes_after_the_retry_of_the_batch() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let gate = running.cluster.path("gate");
    let gate_param = format!("file={}", gate.display());
    let made = running.run_cli(&["run", "check", "--count", "2", "-p", &gate_param, "-q"]);
    assert_eq!(made.out, "1\n", "{made:?}");
    let list = json!([
        {"name": "alarm", "after": [{"batch": 1}]},
        {"name": "alarm", "as": "second", "after": ["alarm", {"batch": 1, "outcome": "succeeded"}]},
        {"name": "report", "after": [{"batch": 1, "outcome": "failed"}]},
    ]);
    assert_eq!(api.post("/api/jobs", Some(&list)).await["batch"], 3);
    fs::write(running.cluster.path("gate.go"), "").unwrap();
    let mut ended = Vec::new();
    for id in 3..=5 {
        ended.push(api.wait_for_job(id, |job| job["ended_at"].is_string()).await);
    }
    let states: Vec<_> = ended.iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["cancelled", "cancelled", "succeeded"]);
    assert_eq!(ended[0]["reason"], "batch 1, which it comes after, ended as failed");
    let nothing = running.run_cli(&["batch", "3", "retry", "--yes"]);
    assert!(nothing.code == 0 && nothing.out.contains("no member of batch 3 is left"), "{nothing:?}");

    fs::write(&gate, "").unwrap();
    let retried = running.run_cli(&["batch", "1", "retry", "--yes", "--wait"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    let rest = running.run_cli(&["pipeline", "4", "retry", "--wait"]);
    assert_eq!(rest.code, 0, "{rest:?}");
    let (first, second) = (api.get("/api/jobs/8").await, api.get("/api/jobs/9").await);
    assert_eq!((&first["retry_of"], &first["after"][0]["batch"]), (&json!(3), &json!(6)), "{first}");
    let after: Vec<_> =
        second["after"].as_array().unwrap().iter().map(|it| (&it["job"], &it["batch"])).collect();
    assert_eq!(after, [(&json!(8), &json!(null)), (&json!(null), &json!(6))]);
    let tree = running.run_cli(&["pipeline", "9"]);
    let expected = "8 alarm succeeded, retry of 3, after batch 6 (succeeded)\n\
        └─ 9 alarm succeeded, retry of 4, also after batch 6 (succeeded)\n";
    assert_eq!(tree.out, expected, "{tree:?}");
}
