//! Jobs that come after others, by the real program: their order, what they are told, retries, and a crash of the server.

use std::fs;

use serde_json::{Value, json};
use testkit::Api;

use crate::running::Running;

const JOBS: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  extract: { command: [sh, -c, 'printf "{\"rows\": 3}" > "$$LONGSHORE_RESULT"'] }
  check: { command: [sh, -c, 'test -e "$$GATE"'], params: { gate: { type: string, required: true } }, environment: { GATE: "${params.gate}" } }
  load: { command: [sh, -c, 'printf "%s" "$$LONGSHORE_AFTER" > "$$LONGSHORE_RESULT"'] }
  alarm: { command: ["true"] }
  slow: { command: [sleep, "600"] }
"#;

async fn states(api: &Api, first: u64, count: u64) -> Vec<String> {
    let mut states = Vec::new();
    for id in first..first + count {
        let job = api.wait_for_job(id, |job| job["ended_at"].is_string()).await;
        states.push(job["state"].as_str().unwrap_or_default().to_owned());
    }
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_runs_in_its_order_and_is_retried_from_the_failed_step() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let gate = running.cluster.path("gate");
    let list = json!([
        {"name": "extract"},
        {"name": "check", "after": ["extract"], "params": {"gate": gate.to_str().unwrap()}},
        {"name": "load", "as": "last", "after": ["extract", {"name": "check", "outcome": "succeeded"}]},
        {"name": "alarm", "after": [{"name": "check", "outcome": "failed"}]},
        {"name": "alarm", "as": "tidy", "after": [{"name": "last", "outcome": "ended"}]},
    ]);
    let file = running.cluster.path("jobs.json");
    fs::write(&file, list.to_string()).unwrap();
    let made = running.run_cli(&["submit", file.to_str().unwrap(), "--batch-name", "nightly", "-q"]);
    assert_eq!((made.code, made.out.as_str()), (0, "1\n"), "{made:?}");
    assert_eq!(states(api, 1, 5).await, ["succeeded", "failed", "cancelled", "succeeded", "succeeded"]);
    let load = api.get("/api/jobs/3").await;
    assert_eq!(load["reason"], "job 2, which it comes after, ended as failed");
    let after = json!([
        {"job": 1, "name": "extract", "outcome": "succeeded", "state": "succeeded"},
        {"job": 2, "name": "check", "outcome": "succeeded", "state": "failed"},
    ]);
    assert_eq!(load["after"], after);
    assert_eq!(load["dependents"][0]["job"], 5);
    let tree = running.run_cli(&["pipeline", "4"]);
    let expected = "1 extract succeeded\n├─ 2 check failed\n│  └─ 4 alarm succeeded if failed\n\
        └─ 3 load cancelled, also after 2\n   └─ 5 alarm succeeded if ended\n";
    assert_eq!(tree.out, expected, "{tree:?}");

    fs::write(&gate, "").unwrap();
    let path = "/api/jobs/3/pipeline/retry";
    let again = api.request(reqwest::Method::POST, path, None, Some("again")).await.unwrap();
    assert_eq!((again.status, &again.body["batch"]), (201, &json!(6)), "{again}");
    // The alarm and the clean-up ran after the failed step: they come after its repetition as well.
    assert_eq!(states(api, 6, 4).await, ["succeeded", "succeeded", "cancelled", "succeeded"]);
    // Nothing is left to repeat, and the key stands for what was repeated.
    let replayed = api.request(reqwest::Method::POST, path, None, Some("again")).await.unwrap();
    assert_eq!((replayed.status, &replayed.body["batch"]), (200, &json!(6)), "{replayed}");
    let load = api.get("/api/jobs/7").await;
    assert_eq!((&load["retry_of"], &load["name"]), (&json!(3), &json!("load")));
    let ends = json!([
        {"job": 1, "name": "extract", "index": 0, "state": "succeeded", "exit_code": 0, "result": {"rows": 3}},
        {"job": 6, "name": "check", "index": 1, "state": "succeeded", "exit_code": 0},
    ]);
    assert_eq!(load["result"], ends);
    let batch = api.get("/api/batches/6").await;
    assert_eq!((&batch["state"], &batch["skipped"]), (&json!("succeeded"), &json!(1)), "{batch}");
    assert_eq!(
        (&batch["definition"], &batch["definitions_differ"]),
        (&json!("check"), &json!(true)),
        "{batch}"
    );
    // It stands for the old one, as `batch 1 retry` would.
    assert_eq!((&batch["name"], &batch["retry_of"]), (&json!("nightly"), &json!(1)), "{batch}");
    assert_eq!(api.get("/api/batches/1").await["retried_as"], 6);
    let shown = running.run_cli(&["batch", "6"]).out;
    assert!(shown.contains("nightly") && shown.contains("batch 1"), "{shown}");
    let alarm =
        json!([{"name": "extract"}, {"name": "alarm", "after": [{"name": "extract", "outcome": "failed"}]}]);
    fs::write(&file, alarm.to_string()).unwrap();
    let whole = running.run_cli(&["submit", file.to_str().unwrap(), "--wait"]);
    assert_eq!(whole.code, 0, "{whole:?}");
    let batch = api.get("/api/batches/10").await;
    assert_eq!((&batch["state"], &batch["skipped"]), (&json!("succeeded"), &json!(1)), "{batch}");
    let nothing = running.run_cli(&["pipeline", "7", "retry"]);
    assert!(nothing.err.contains("job 2 was retried as job 6, which has succeeded"), "{nothing:?}");
    let nothing = running.run_cli(&["batch", "1", "retry"]);
    assert!(nothing.code == 0 && nothing.out.contains("no member of batch 1 is left"), "{nothing:?}");
}

/// Somebody may have to repeat the others as well: the new batch does not stand for all members.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_one_of_two_pipelines_is_no_retry_of_their_batch() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let file = running.cluster.path("jobs.json");
    let check = |name: &str| json!({"name": "check", "as": name, "params": {"gate": "/nonexistent"}});
    let list =
        json!([check("a"), {"name": "load", "after": ["a"]}, check("b"), {"name": "load", "after": ["b"]}]);
    fs::write(&file, list.to_string()).unwrap();
    let made = running.run_cli(&[
        "submit",
        file.to_str().unwrap(),
        "--batch-name",
        "two",
        "--concurrency",
        "7",
        "-q",
    ]);
    assert_eq!(made.out, "1\n");
    assert_eq!(states(api, 1, 4).await, ["failed", "cancelled", "failed", "cancelled"]);
    assert_eq!(running.run_cli(&["pipeline", "1", "retry", "-q"]).out, "5\n");
    let batch = api.get("/api/batches/5").await;
    assert_eq!((&batch["name"], &batch["concurrency"]), (&json!("two"), &json!(7)), "{batch}");
    assert_eq!(batch["retry_of"], json!(null), "{batch}");
    assert_eq!(api.get("/api/batches/1").await["retried_as"], json!(null));
}

/// A retry that comes after the same job belongs to the pipeline.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_within_the_pipeline_stands_for_its_job() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let (gate, file) = (running.cluster.path("gate"), running.cluster.path("jobs.json"));
    let list = json!([{"name": "extract"}, {"name": "check", "after": ["extract"], "params": {"gate": gate.to_str().unwrap()}},
        {"name": "load", "after": ["check"]}]);
    fs::write(&file, list.to_string()).unwrap();
    assert_eq!(running.run_cli(&["submit", file.to_str().unwrap(), "-q"]).out, "1\n");
    assert_eq!(states(api, 1, 3).await, ["succeeded", "failed", "cancelled"]);
    fs::write(&gate, "").unwrap();
    assert_eq!(api.post("/api/jobs/2/retry", Some(&json!({"after": [1]}))).await["id"], 4);
    assert_eq!(states(api, 4, 1).await, ["succeeded"]);
    let rest = running.run_cli(&["pipeline", "3", "retry", "--wait"]);
    assert_eq!(rest.code, 0, "{rest:?}");
    let load = api.get("/api/jobs/5").await;
    assert_eq!((&load["retry_of"], &load["after"][0]["job"]), (&json!(3), &json!(4)), "{load}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_were_retried_are_not_retried_with_others_again() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let (gate, file) = (running.cluster.path("gate"), running.cluster.path("jobs.json"));
    let list = json!([{"name": "check", "params": {"gate": gate.to_str().unwrap()}}, {"name": "load", "after": ["check"]}]);
    fs::write(&file, list.to_string()).unwrap();
    assert_eq!(running.run_cli(&["submit", file.to_str().unwrap(), "-q"]).out, "1\n");
    assert_eq!(states(api, 1, 2).await, ["failed", "cancelled"]);
    fs::write(&gate, "").unwrap();
    assert_eq!(running.run_cli(&["retry", "1"]).code, 0);
    assert_eq!(states(api, 3, 1).await, ["succeeded"]);
    for words in [&["retry", "--batch", "1", "-y"][..], &["retry", "--state", "failed", "-y"]] {
        let told = running.run_cli(words);
        assert!(told.code == 0 && !running.run_cli(&["ls"]).out.contains("4 "), "{words:?}: {told:?}");
    }
    let rest = running.run_cli(&["pipeline", "1", "retry", "--wait"]);
    assert_eq!(rest.code, 0, "{rest:?}");
    assert_eq!(api.get("/api/jobs/4").await["state"], "succeeded");
    let load = api.get("/api/jobs/4").await;
    assert_eq!((&load["retry_of"], &load["after"][0]["job"]), (&json!(2), &json!(3)), "{load}");
    let nothing = running.run_cli(&["pipeline", "1", "retry"]);
    assert!(nothing.err.contains("job 1 was retried as job 3, which has succeeded"), "{nothing:?}");
    let tree = running.run_cli(&["pipeline", "1"]);
    assert!(tree.out.starts_with("1 check failed, retried as 3 (succeeded)\n"), "{tree:?}");
    let shown = running.run_cli(&["show", "1"]);
    assert!(
        shown.out.lines().any(|line| line.split_whitespace().eq(["retried", "as", "3", "(succeeded)"])),
        "{shown:?}"
    );
    let page = String::from_utf8(api.get_bytes("/jobs/1").await).unwrap();
    assert!(
        page.contains("<dt>Retried as</dt>") && !page.contains("Run what has not succeeded again"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_another_one_survives_a_crash_of_the_server() {
    let mut running = Running::start(JOBS).await;
    let slow = running.run_cli(&["run", "slow", "-q"]);
    let id = slow.out.trim();
    let waiting = running.run_cli(&["run", "load", "--after", &format!("{id}:ended"), "-q"]);
    assert_eq!(waiting.code, 0, "{waiting:?}");
    let job: u64 = waiting.out.trim().parse().unwrap();
    let reason = json!({"code": "dependencies", "text": format!("job {id}, which it comes after, must end first (after)")});
    assert_eq!(running.api.get(&format!("/api/jobs/{job}")).await["pending_reason"], reason);
    assert_eq!(running.api.get("/api/jobs?state=scheduled").await[0]["pending_reason"], reason);
    running.server.kill();
    let _server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    assert_eq!(running.api.get(&format!("/api/jobs/{job}")).await["pending_reason"], reason);
    running.run_cli(&["cancel", id]);
    let ended = running.api.wait_for_job(job, |job| job["ended_at"].is_string()).await;
    assert_eq!((&ended["state"], &ended["result"][0]["state"]), (&json!("succeeded"), &json!("cancelled")));
}

/// A later job has them after a crash as well, and when somebody repeats it.
#[tokio::test(flavor = "multi_thread")]
async fn the_results_of_earlier_jobs_become_parameters_of_a_later_one() {
    let mut running = Running::start(PASSED_ON).await;
    let api = &running.api;
    let write = |result: Value| json!({"name": "write", "args": [result.to_string()]});
    let list = json!([
        write(json!({"rows": 1, "table": "orders", "key": "swordfish"})),
        write(json!({"rows": 3, "mode": "slow"})),
        {"name": "load", "after": ["write"], "params": {"table": "mine"}},
        {"name": "closed", "after": ["write"]},
    ]);
    api.post("/api/jobs", Some(&list)).await;
    assert_eq!(states(api, 1, 4).await, ["succeeded"; 4]);
    running.server.kill();
    let _server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("only").await;
    let api = &running.api;

    let load = api.get("/api/jobs/3").await;
    let told = json!({"word": "3", "table": "mine", "mode": "fast", "key": "swordfish".len()});
    assert_eq!(load["result"], told, "the submission first, then the last result, then the default: {load}");
    assert_eq!(load["params"], json!({"rows": 3, "table": "mine", "key": "***"}));
    let left_out = load["timeline"].as_array().unwrap().iter().find(|it| it["event"] == "result_left_out");
    let text = "parameter mode: \"slow\" is not one of its values";
    assert_eq!(left_out.map(|it| &it["text"]), Some(&json!(text)), "{load}");
    let closed = api.get("/api/jobs/4").await;
    assert_eq!((&closed["params"], &closed["result"]["word"]), (&Value::Null, &json!("0")), "{closed}");
    let again = api.post("/api/jobs/3/retry", None).await["id"].as_u64().unwrap();
    let again = api.wait_for_job(again, |job| job["state"] == "succeeded").await;
    assert_eq!((&again["result"], &again["params"]), (&told, &load["params"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_results_of_jobs_that_ended_before_the_request_become_parameters() {
    let running = Running::start(PASSED_ON).await;
    let api = &running.api;
    let write = |result: Value| json!({"args": [result.to_string()]});
    api.post("/api/jobs/write?wait=30s", Some(&write(json!({"rows": 3, "mode": "good"})))).await;
    api.post("/api/jobs/write?wait=30s", Some(&write(json!({"rows": 4, "table": "orders"})))).await;
    assert_eq!(states(api, 1, 2).await, ["succeeded"; 2]);

    let first = api.post("/api/jobs/load?wait=30s", Some(&json!({"after": [1]}))).await;
    assert_eq!(first["result"], json!({"word": "3", "table": "", "mode": "good", "key": 0}), "{first}");
    assert_eq!(first["params"], json!({"rows": 3, "mode": "good"}));
    let both = json!({"after": [1, {"job": 2, "outcome": "ended"}], "params": {"rows": 9}});
    let both = api.post("/api/jobs/load?wait=30s", Some(&both)).await;
    assert_eq!(both["result"], json!({"word": "9", "table": "orders", "mode": "good", "key": 0}), "{both}");
}

const PASSED_ON: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  write: { command: [sh, -c, 'printf %s "$$1" > "$$LONGSHORE_RESULT"', sh] }
  load:
    params: &params
      rows: { type: integer, default: 0 }
      table: { type: string, required: false }
      mode: { enum: [fast, good], default: fast }
      key: { type: string, required: false, secret: true }
    command: &load
      - sh
      - -c
      - >-
        printf '{"word": "%s", "table": "%s", "mode": "%s", "key": %d}' "$$1" "$$PARAM_TABLE" "$$PARAM_MODE"
        "$${#PARAM_KEY}" > "$$LONGSHORE_RESULT"
      - sh
      - "${params.rows}"
  closed: { params: *params, command: *load, allow: [after] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_follow_is_refused_with_a_reason() {
    let running = Running::start(JOBS).await;
    let api = &running.api;
    let gate = running.cluster.path("no-gate");
    let check = json!({"params": {"gate": gate.to_str().unwrap()}});
    let failed = api.post("/api/jobs/check?wait=30s", Some(&check)).await["id"].clone();
    let refusal = |body: Value| async move {
        let path = if body.is_array() { "/api/jobs" } else { "/api/jobs/load" };
        let answer = api.request(reqwest::Method::POST, path, Some(&body), None).await.unwrap();
        let problem = answer.body;
        (answer.status, problem["code"].as_str().unwrap_or_default().to_owned(), problem.to_string())
    };
    let mut many = vec![json!({"name": "extract"}); 1_001];
    many.push(json!({"name": "load", "after": ["extract"]}));
    let cases = [
        (json!({"after": [failed]}), 409, "predecessor_ended", "has ended as failed"),
        (json!({"after": [99]}), 422, "invalid_dependency", "there is no job 99"),
        (json!({"after": [1, 1]}), 422, "invalid_dependency", "named twice"),
        (json!({"after": "extract"}), 422, "invalid_dependency", "it is a list"),
        (json!({"timeout": 90}), 422, "invalid_duration", "write 90s"),
        (json!({"after": ["extract"]}), 422, "invalid_dependency", "only an entry of a list"),
        (json!({"after": [{"job": 1, "outcome": "lost"}]}), 422, "invalid_dependency", "there is no outcome"),
        (json!({"after": [{"job": 1, "when": 2}]}), 422, "invalid_dependency", "there is no field"),
        (json!([{"name": "load", "after": ["nobody"]}]), 422, "invalid_dependency", "no entry of the list"),
        (many.into(), 422, "invalid_dependency", "1000 others at most"),
        (
            json!([{"name": "load", "as": "a", "after": ["b"]}, {"name": "load", "as": "b", "after": ["a"]}]),
            422,
            "invalid_dependency",
            "a (jobs[0]) waits for b (jobs[1]) waits for a (jobs[0])",
        ),
    ];
    for (body, status, code, words) in cases {
        let shown = body.to_string();
        let (said_status, said_code, said) = refusal(body).await;
        assert_eq!((said_status, said_code.as_str()), (status, code), "{shown}: {said}");
        assert!(said.contains(words), "{shown}: {said}");
    }
    // It has ended as required: the job starts at once.
    let body = json!({"after": [{"job": failed, "outcome": "failed"}]});
    let job = api.post("/api/jobs/load?wait=30s", Some(&body)).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["result"][0]["exit_code"], 1, "{job}");
}
