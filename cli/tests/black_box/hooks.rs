//! Hooks by the real program: an event has its job, with the parent's facts, also after a crash of the server.

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

    let raised = api.wait_for_job(alert, |job| job["state"] == "succeeded").await;
    assert_eq!(raised["parent"], json!({"job": report, "hook": "on_failure"}));
    let facts = raised["result"].as_str().unwrap();
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

/// The job of a hook gets its parent's result: whole in a variable, and as the parameters that it declares. It has them after a crash as
/// well, and when somebody repeats it.
#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_job_reaches_the_jobs_of_its_hooks() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), PASSED_ON);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let first = api
        .post("/api/jobs/extract", Some(&json!({"args": ["{\n \"rows\": 3,\t\"mode\": \"slow\"\n}"]})))
        .await;
    let extract = first["id"].as_u64().unwrap();
    let worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    let parent = api.wait_for_job(extract, |job| job["state"] == "succeeded").await;
    drop(worker);
    server.kill();
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-process"]);
    let job_of = |parent: &Value, number: usize| parent["hooks"][number]["job"].as_u64().unwrap();
    let load = api.wait_for_job(job_of(&parent, 0), |job| job["state"] == "succeeded").await;
    let expected = json!({
        "word": "3", "rows": "3", "mode": "fast", "parent": {"rows": 3, "mode": "slow"}
    });
    assert_eq!(load["result"], expected, "a mode that does not exist is left out");
    assert_eq!(load["params"], json!({"rows": 3}), "{load}");
    let left_out = load["timeline"].as_array().unwrap().iter().find(|it| it["event"] == "result_left_out");
    let text = "parameter mode: \"slow\" is not one of its values";
    assert_eq!(left_out.map(|it| &it["text"]), Some(&json!(text)), "{load}");
    let closed = api.wait_for_job(job_of(&parent, 1), |job| job["state"] == "succeeded").await;
    assert_eq!(closed["params"], Value::Null, "it allows submissions no parameters: {closed}");
    assert_eq!(closed["result"]["parent"], expected["parent"]);
    let again = api.post(&format!("/api/jobs/{}/retry", job_of(&parent, 0)), None).await;
    let again = api.wait_for_job(again["id"].as_u64().unwrap(), |job| job["state"] == "succeeded").await;
    assert_eq!(again["result"], expected);

    // A result that is too long for a variable still gives parameters; a job that fails has no result.
    let long = json!({"rows": 4, "long": "x".repeat(40_000)}).to_string();
    let args = json!({"args": ["", "large"], "environment": {"LONG": "x".repeat(30_000)}});
    let large = api.post("/api/jobs/extract", Some(&args)).await["id"].as_u64().unwrap();
    let large = api.wait_for_job(large, |job| job["state"] == "succeeded").await;
    assert!(large["result"].to_string().len() > long.len(), "{}", large["result"].to_string().len());
    let load = api.wait_for_job(job_of(&large, 0), |job| job["state"] == "succeeded").await;
    assert_eq!(load["result"], json!({"word": "4", "rows": "4", "mode": "fast", "parent": null}));
    assert!(load["timeline"].to_string().contains("LONGSHORE_PARENT_RESULT would have"), "{load}");
    let failed =
        api.post("/api/jobs/extract", Some(&json!({"args": ["{}", "fail"]}))).await["id"].as_u64().unwrap();
    let failed = api.wait_for_job(failed, |job| job["state"] == "failed").await;
    let closed = api.wait_for_job(job_of(&failed, 0), |job| job["state"] == "succeeded").await;
    assert_eq!(closed["result"]["parent"], Value::Null);
}

const PASSED_ON: &str = r#"
version: 1
defaults:
  runtime: process
jobs:
  extract:
    command:
      - sh
      - -c
      - >-
        case "$$2" in
        large) printf '{"rows": 4, "long": "%s%s"}' "$$LONG" "$$LONG" ;;
        *) printf %s "$$1" ;;
        esac > "$$LONGSHORE_RESULT"; test "$$2" != fail
      - sh
    hooks: { on_success: load, on_end: closed }
  load:
    params: &params
      rows: { type: integer, default: 0 }
      mode: { enum: [fast, good], default: fast }
    command: &load
      - sh
      - -c
      - >-
        printf '{"word": "%s", "rows": "%s", "mode": "%s", "parent": %s}' "$$1" "$$PARAM_ROWS" "$$PARAM_MODE"
        "$${LONGSHORE_PARENT_RESULT:-null}" > "$$LONGSHORE_RESULT"
      - sh
      - "${params.rows}"
  closed: { params: *params, command: *load, allow: [] }
"#;

/// A job of a schedule with `overlap: queue` says which job it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_an_earlier_slot_names_its_job() {
    let jobs =
        "jobs: {drag: {runtime: process, command: [sleep, '60'], schedule: {every: 200ms}, overlap: queue}}";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    let api = cluster.api();
    // For some milliseconds the snapshot does not know yet what the new job waits for.
    let reason = testkit::wait_for("a job waits for an earlier one", async || {
        let jobs = api.get("/api/jobs?name=drag&state=scheduled").await;
        let reason = jobs.as_array()?.last()?["pending_reason"].clone();
        (reason["code"] != "not_due").then_some(reason)
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
