//! Hooks by the real program: an event has its job, with the parent's facts, also behind a crash of the server.

use serde_json::{Value, json};
use testkit::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_and_the_jobs_of_its_hooks_know_each_other() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    api.wait_for_ready_worker("only").await;
    let report = api.post("/api/jobs/report", None).await["id"].as_u64().unwrap();
    let parent = api.wait_for_job(report, |job| job["state"] == "failed").await;

    // The hooks are there with the end, in the order of their events.
    let hooks = parent["hooks"].as_array().unwrap();
    let named: Vec<&str> = hooks.iter().map(|hook| hook["hook"].as_str().unwrap()).collect();
    assert_eq!(named, ["on_start", "on_failure", "on_end"], "{parent}");
    let alert = hooks[1]["job"].as_u64().unwrap();
    let shut = &hooks[2];
    assert_eq!((&shut["name"], &shut["left_out"]["code"]), (&json!("shut"), &json!("disabled")), "{shut}");
    let timeline: Vec<&str> =
        parent["timeline"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(timeline[timeline.len() - 3..], ["failed", "hook_made", "hook_left_out"], "{timeline:?}");

    let told = api.wait_for_job(alert, |job| job["state"] == "succeeded").await;
    assert_eq!(told["parent"], json!({"job": report, "hook": "on_failure"}));
    let facts = told["result"].as_str().unwrap();
    assert_eq!(facts, format!("{report} report failed 2 failed 3 exit code 3"));
    let begun = hooks[0]["job"].as_u64().unwrap();
    let begun = api.wait_for_job(begun, |job| job["state"] == "succeeded").await;
    assert_eq!(begun["result"], json!(format!("{report} report running 1   ")), "the first start only");

    server.kill();
    let _server = cluster.start_server(&[]).await;
    let again = api.get(&format!("/api/jobs/{report}")).await;
    let jobs = |job: &Value| -> Vec<Value> {
        job["hooks"].as_array().unwrap().iter().map(|hook| hook["job"].clone()).collect()
    };
    assert_eq!(jobs(&again), jobs(&parent), "a crash makes no further job");
    let (_, shown) = cluster.run_cli(&["show", &report.to_string(), "--server", &cluster.address()]);
    assert!(shown.contains(&format!("on_failure alert: job {alert}, succeeded")), "{shown}");
    assert!(shown.contains("on_end shut: left out, its definition is disabled"), "{shown}");
    let (_, shown) = cluster.run_cli(&["show", &alert.to_string(), "--server", &cluster.address()]);
    assert!(shown.contains(&format!("job {report} (on_failure)")), "{shown}");
    let definition = api.get("/api/definitions/report").await;
    assert_eq!(
        definition["hooks"],
        json!({"on_start": ["begun"], "on_failure": ["alert"], "on_end": ["shut"]})
    );
}

/// A job of a schedule with `overlap: queue` says which job it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_an_earlier_slot_names_its_job() {
    let jobs =
        "jobs: {drag: {runtime: process, command: [sleep, '60'], schedule: {every: 200ms}, overlap: queue}}";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let reason = testkit::wait_for("a job waits for an earlier one", async || {
        let jobs = api.get("/api/jobs?name=drag&state=scheduled").await;
        jobs.as_array()?.last().map(|job| job["pending_reason"].clone())
    })
    .await;
    let text = "job 1 of the same schedules must end first (overlap)";
    assert_eq!(reason, json!({"code": "earlier_job", "text": text}));
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    let explained = api.get("/api/jobs/2/explain").await;
    assert_eq!(explained["reason"]["code"], "earlier_job", "{explained}");
}

const JOBS: &str = r#"
version: 1
defaults:
  runtime: process
  command:
    - sh
    - -c
    - >-
      printf '"%s"' "$$LONGSHORE_PARENT_JOB $$LONGSHORE_PARENT_NAME $$LONGSHORE_PARENT_STATE $$LONGSHORE_PARENT_ATTEMPT
      $$LONGSHORE_PARENT_OUTCOME $$LONGSHORE_PARENT_EXIT_CODE $$LONGSHORE_PARENT_REASON" > "$$LONGSHORE_RESULT"
jobs:
  report:
    command: [sh, -c, exit 3]
    retry: { max: 1, backoff: { kind: fixed, initial: 10ms } }
    hooks: { on_start: begun, on_failure: alert, on_end: shut }
  begun: {}
  alert: {}
  shut: { enabled: false }
"#;
